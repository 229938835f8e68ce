"""Settings and steps that Spark refuses, told at their own lines."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headrace.spark.pipeline import PipelineInvalid, load
from headrace.spark.pipeline.calls import Get, Name
from headrace.spark.pipeline.compiler import streaming_program
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.frames import configured, frame_of
from tests.unit.spark.pipeline.test_spec_reader import SMALL


class Conf:
    """Settings of a session: one that takes numbers alone, and one that it was made with."""

    def __init__(self) -> None:
        self.values = {"spark.sql.shuffle.partitions": "2", "spark.master": "local"}

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def isModifiable(self, name: str) -> bool:  # noqa: N802, as Spark names it
        return name.startswith("spark.sql.")

    def set(self, name: str, value: str) -> None:
        if not value.isdigit():
            raise ValueError(f"{name} should be int, but was {value}")
        self.values[name] = value


class Session:
    def __init__(self) -> None:
        self.conf = Conf()


SETTINGS = "settings:\n  spark.sql.shuffle.partitions: {}\n  spark.master: {}\n"


def test_settings_that_spark_does_not_take_are_told_at_their_lines() -> None:
    session, findings = Session(), Findings("a.yaml")
    spec = load(SMALL + SETTINGS.format("many", "yarn"), {}).spec
    lines = len(SMALL.splitlines())
    with (
        pytest.raises(PipelineInvalid) as raised,
        configured(cast(SparkSession, session), spec, findings),
    ):
        raise AssertionError("nothing may start with these")
    first, second = raised.value.problems
    assert (first.line, second.line) == (lines + 2, lines + 3)
    assert first.message.endswith("should be int, but was many")
    assert second.message.startswith("settings: spark.master is local in this session, and cannot")


def test_a_wrong_setting_that_the_session_was_made_with_is_told_too() -> None:
    session, findings = Session(), Findings("a.yaml")
    session.conf.values["spark.sql.shuffle.partitions"] = "many"
    spec = load(SMALL + SETTINGS.format("many", "local"), {}).spec
    with pytest.raises(PipelineInvalid), configured(cast(SparkSession, session), spec, findings):
        raise AssertionError("nothing may start with these")


def test_a_session_that_is_of_no_use_for_a_setting_is_told_at_its_line() -> None:
    class Broken:
        @property
        def conf(self) -> Conf:
            raise ValueError("The value 'many' in spark.sql.shuffle.partitions is invalid.")

    spec = load(SMALL + SETTINGS.format("many", "local"), {}).spec
    with (
        pytest.raises(PipelineInvalid) as raised,
        configured(cast(SparkSession, Broken()), spec, Findings("a.yaml")),
    ):
        raise AssertionError("nothing may start with these")
    [problem] = raised.value.problems
    assert problem.line == len(SMALL.splitlines()) + 2


def test_settings_hold_while_queries_start_and_are_as_before_afterwards() -> None:
    session, findings = Session(), Findings("a.yaml")
    spec = load(SMALL + SETTINGS.format("7", "local"), {}).spec
    with configured(cast(SparkSession, session), spec, findings):
        assert session.conf.values["spark.sql.shuffle.partitions"] == "7"
    assert session.conf.values["spark.sql.shuffle.partitions"] == "2"


WINDOW = """
steps:
  - window:
      time: at
      size: 1 minute
      by: [user, item]
      agg:
        n: count(*)
        total: sum(price)
        most: max(price) + min(cost)
"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("[UNRESOLVED_COLUMN] A column with name `cost` cannot be resolved.", 10),
        ("[PARSE] Near '('. \n== SQL ==\nsum(price)\n---^^^\n", 9),
        ("[UNRESOLVED_COLUMN] A column with name `item` cannot be resolved.", 6),
        ("[UNRESOLVED_COLUMN] A column with name `price` cannot be resolved.", 3),
        ("[OTHER] It is not so.", 3),
    ],
)
def test_what_is_wrong_within_a_window_is_told_at_its_part(said: str, line: int) -> None:
    class Refusing:
        """A session that refuses whatever is asked of it."""

        @property
        def readStream(self) -> None:  # noqa: N802, as Spark names it
            raise ValueError(said)

    spec = load(SMALL.replace("console:", "console: {mode: complete}") + WINDOW, {}).spec
    program = streaming_program(spec, spec.sinks[0], "a:1")
    [window] = [each for each in program.lines if each.parts]
    wrong = replace(window, value=Get(Name("spark"), "readStream"))
    findings = Findings("a.yaml")
    session = cast(SparkSession, Refusing())
    assert frame_of(replace(program, lines=(wrong,)), session, findings) is None
    [problem] = findings.problems
    assert problem.line - len(SMALL.splitlines()) == line


def test_a_schema_is_told_where_it_stands_and_not_where_its_value_does() -> None:
    text = SMALL.replace("[clicks]", "[clicks], value: {format: json,\n   schema: 'a int,'}")
    with pytest.raises(PipelineInvalid) as raised:
        load(text, {})
    assert [each.line for each in raised.value.problems] == [5]
