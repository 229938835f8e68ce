"""The smaller parts: fields of schemas, checkpoints on disk, functions, files of a directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.client import TopicPartition
from headrace.core.errors import InvalidConfig
from headrace.spark.offsets import Range
from headrace.spark.options import source_options
from headrace.spark.pipeline import load
from headrace.spark.pipeline.backfill import held_by_checkpoint
from headrace.spark.pipeline.checkpoint_owner import record_owner, refuse_others
from headrace.spark.pipeline.checkpoints import (
    CheckpointUnreadable,
    begun_at,
    has_past,
    last_batch,
    newest_topics,
    offsets_as_from,
    planned_up_to,
)
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.frames import reason, refuse_over_connect
from headrace.spark.pipeline.functions import load_function
from headrace.spark.pipeline.listing import pipeline_files
from headrace.spark.pipeline.model import Value
from headrace.spark.pipeline.read_source import milliseconds
from headrace.spark.pipeline.value_columns import field_names
from tests.unit.spark.pipeline.test_spec_reader import SMALL


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("a int, b string", ("a", "b")),
        ("a: int, `b c` string not null", ("a", "b c")),
        ("p struct<x: int, y: array<map<string, int>>>, d decimal(10, 2)", ("p", "d")),
        ("a int COMMENT 'one, two', b int", ("a", "b")),
        ('{"type":"struct","fields":[{"name":"x","type":"integer"}]}', ("x",)),
    ],
)
def test_fields_of_a_schema_are_known_without_spark(schema: str, names: tuple[str, ...]) -> None:
    assert field_names(Value("json", schema)) == names


def test_fields_of_an_avro_schema_are_known() -> None:
    schema = '{"type":"record","name":"r","fields":[{"name":"x","type":"int"}]}'
    assert field_names(Value("avro", schema)) == ("x",)


@pytest.mark.parametrize("schema", ["a int,", "a struct<b: int", "{}", "`a int"])
def test_what_is_no_schema_is_refused(schema: str) -> None:
    with pytest.raises(InvalidConfig):
        field_names(Value("json", schema))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01", 1_767_225_600_000),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("1767225600000", 1_767_225_600_000),
        ("2026", None),
        ("soon", None),
    ],
)
def test_times_are_utc_unless_they_have_a_zone(text: str, found: int | None) -> None:
    assert milliseconds(text) == found


def test_the_last_batch_is_the_newest_that_has_ended(tmp_path: Path) -> None:
    for directory, names in (("offsets", ("0", "9", "10", "11")), ("commits", ("0", "9", "10"))):
        (tmp_path / directory).mkdir()
        for name in (*names, f".{names[-1]}.crc", "metadata"):
            (tmp_path / directory / name).touch()
    os.utime(tmp_path / "commits" / "10", (1000, 1000))
    found = last_batch(f"file://{tmp_path}")
    assert found is not None
    assert (found.number, found.at) == (10, 1000)


def test_a_checkpoint_that_was_never_used_has_no_past(tmp_path: Path) -> None:
    assert last_batch(str(tmp_path / "nowhere")) is None
    assert not has_past(str(tmp_path / "nowhere"))
    (tmp_path / "offsets").mkdir()
    assert not has_past(str(tmp_path))
    (tmp_path / "offsets" / "0").touch()
    assert has_past(str(tmp_path))


def test_a_checkpoint_elsewhere_is_taken_to_have_a_past() -> None:
    assert has_past("hdfs://host/checkpoint")
    assert last_batch("hdfs://host/checkpoint") is None


def test_functions_come_from_files_and_modules(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps.py").write_text(f"def step(): return {name!r}\n")
    first = load_function(f"{tmp_path}/one/steps.py:step")
    second = load_function(f"{tmp_path}/two/steps.py:step")
    assert (first(), second()) == ("one", "two")
    assert first.__module__ != second.__module__, "one would hide the other from pickle"
    assert load_function("os.path:join") is os.path.join


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("os:nothing", "os has no 'nothing'"),
        ("os:sep", "os:sep cannot be called"),
        ("no.such.module:f", "cannot import no.such.module: ModuleNotFoundError"),
        ("/nowhere/steps.py:f", "cannot load /nowhere/steps.py: FileNotFoundError"),
    ],
)
def test_functions_that_are_not_there_are_told(where: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        load_function(where)


TRACE = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "steps.py", line 3, in f
    raise ValueError('first')
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "steps.py", line 5, in f
    raise errors.Worse('second')
house.core.errors.Worse: second: house.x
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: a
"""  # noqa: E501


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TRACE, "Worse: second: house.x"),
        ("[A.B] It is wrong. SQLSTATE: 42000; line 1 pos 2;\n'Plan x\n", "[A.B] It is wrong."),
        ("\n[P] Near 'x'. SQLSTATE: 1 (line 1, pos 9)\n\n== SQL ==\nx\n", "[P] Near 'x'."),
        ("Sorting is not supported;\n~Sort\n", "Sorting is not supported"),
        ("An error occurred while calling o1.x.\n: java.lang.Odd: no\n\tat a", "java.lang.Odd: no"),
        ("", "ValueError"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(text: str, found: str) -> None:
    assert reason(ValueError(text)) == found


def test_what_a_connect_server_cannot_do_is_told_at_its_line() -> None:
    class Remote:
        """A session without a JVM of its own."""

    text = (
        SMALL + "  - delta: {path: /a, upsert: {on: [id]}}\nsteps:\n  - sql: SELECT 1 FROM input\n"
    )
    findings, remote = Findings("a.yaml"), cast(SparkSession, Remote())
    refuse_over_connect(load(text).spec, remote, findings)
    assert [str(each) for each in findings.problems] == [
        "a.yaml:7:23: over Spark Connect a stream cannot be upserted",
        "a.yaml:9:5: over Spark Connect a step cannot be `sql`: use select",
    ]


def test_pipelines_of_a_directory_are_its_yaml_files(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.txt"):
        (tmp_path / name).touch()
    found = pipeline_files([tmp_path / "b.yaml", tmp_path])
    assert [path.name for path in found] == ["b.yaml", "a.yml"]


def test_offsets_to_go_on_from_can_be_copied_into_the_file() -> None:
    offsets = {
        TopicPartition("clicks.v2", 1): 7,
        TopicPartition("clicks.v2", 0): 5,
        TopicPartition("a", 0): 0,
    }
    line = offsets_as_from(offsets)
    assert line == "from: {offsets: {a: {0: 0}, clicks.v2: {0: 5, 1: 7}}}"
    text = f"""
name: clicks
checkpoint: /data
source:
  topics: [a, clicks.v2]
  {line}
sinks:
  - console:
"""
    source = load(text, {}).spec.source
    options = {**dict(source.options), **dict(source.starting)}
    chosen = source_options({**options, "kafka.bootstrap.servers": "a:1"}, streaming=True)
    assert chosen.starting == offsets


def checkpoint_at(directory: Path, *ends: str) -> None:
    """A checkpoint as Spark writes it: batches that end there, the last one begun but not done."""
    for kind, batches in (("offsets", ends), ("commits", ends[:-1])):
        (directory / kind).mkdir(parents=True)
        for batch, offsets in enumerate(batches):
            (directory / kind / str(batch)).write_text(f'v1\n{{"a":1}}\n{offsets}')


FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def test_a_checkpoint_tells_from_where_and_how_far_batches_read(tmp_path: Path) -> None:
    """A batch that was begun counts: the pipeline itself does it again."""
    ends = ('{"clicks":{"0":2,"1":0}}', '{"clicks":{"0":4,"1":7}}', '{"clicks":{"0":5,"1":7}}')
    checkpoint_at(tmp_path / "known", *ends)
    known = str(tmp_path / "known")
    assert planned_up_to(known) == {FIRST: 5, SECOND: 7}
    assert begun_at(known) == {FIRST: 2, SECOND: 0}
    (tmp_path / "known" / "offsets" / "0").unlink()
    assert begun_at(known) is None
    for none in (str(tmp_path / "none"), "hdfs://far/away"):
        assert planned_up_to(none) == {}
        assert begun_at(none) is None


def test_a_batch_of_other_topics_does_not_hide_what_was_read_before(tmp_path: Path) -> None:
    checkpoint_at(tmp_path, '{"clicks":{"0":2,"1":5}}', '{"clicks":{"0":4}}', '{"views":{"0":1}}')
    views = TopicPartition("views", 0)
    assert planned_up_to(str(tmp_path)) == {FIRST: 4, SECOND: 5, views: 1}
    assert newest_topics(str(tmp_path)) == ["views"]


@pytest.mark.parametrize("end", ["-", "", '{"clicks":3}'])
def test_a_checkpoint_that_is_cut_short_is_not_taken_for_an_empty_one(
    tmp_path: Path, end: str
) -> None:
    checkpoint_at(tmp_path, '{"clicks":{"0":2}}', end)
    with pytest.raises(CheckpointUnreadable, match=r"offsets/1 cannot be read"):
        planned_up_to(str(tmp_path))
    assert newest_topics(str(tmp_path)) == []


def test_a_checkpoint_tells_whose_it_is_and_keeps_its_owner(tmp_path: Path) -> None:
    spec = load(SMALL.replace("/data/checkpoints/clicks", str(tmp_path)), {}).spec
    other = replace(spec, name="other")
    checkpoint, findings = str(tmp_path / "console"), Findings("clicks.yaml")
    refuse_others(spec, "127.0.0.1:1", findings)
    record_owner(checkpoint, "clicks-console")
    record_owner(checkpoint, "other-console")
    refuse_others(spec, "127.0.0.1:1", findings)
    assert not findings.problems
    refuse_others(other, "127.0.0.1:1", findings)
    [problem] = findings.problems
    assert problem.message.startswith(
        f"the checkpoint {checkpoint} is that of the query clicks-console, and this is other-"
    )
    (tmp_path / "console" / "headrace.json").write_text("{")  # as nothing was known
    refuse_others(other, "127.0.0.1:1", findings)
    record_owner("hdfs://far/away", "clicks-console")
    assert len(findings.problems) == 1


def test_a_checkpoint_of_other_topics_is_told(tmp_path: Path) -> None:
    checkpoint_at(tmp_path / "console", '{"views":{"0":2}}')
    text = SMALL.replace("/data/checkpoints/clicks", str(tmp_path))
    findings = Findings("clicks.yaml")
    refuse_others(load(text, {}).spec, "127.0.0.1:1", findings)
    assert ["is of a query that reads views:" in each.message for each in findings.problems] == [
        True
    ]


def test_what_a_checkpoint_holds_of_a_range_is_told_for_every_partition(tmp_path: Path) -> None:
    ends = ('{"clicks":{"0":2,"1":0}}', '{"clicks":{"0":5,"1":7}}')
    checkpoint_at(tmp_path / "console", *ends)
    spec = load(SMALL.replace("/data/checkpoints/clicks", str(tmp_path)), {}).spec
    [sink] = spec.sinks

    def held(start: int, end: int) -> list[Range]:
        both = (FIRST, SECOND)
        first, last = dict.fromkeys(both, start), dict.fromkeys(both, end)
        return held_by_checkpoint(spec, sink, "127.0.0.1:1", first, last)

    assert held(0, 9) == [Range(FIRST, 2, 5), Range(SECOND, 0, 7)]
    assert held(0, 2) == [Range(SECOND, 0, 2)]
    assert held(5, 9) == [Range(SECOND, 5, 7)]
    assert held(7, 9) == []
    # Where it began can no longer be told: rather refused than there twice.
    (tmp_path / "console" / "offsets" / "0").unlink()
    assert held(0, 2) == [Range(FIRST, 0, 2), Range(SECOND, 0, 2)]


def test_a_carried_column_goes_round_a_function(tmp_path: Path) -> None:
    """Neither seen nor lost by it, and first: Spark leaves out columns beyond those declared."""
    path = tmp_path / "steps.py"
    path.write_text(
        "def twice(batches):\n"
        "    for batch in batches:\n"
        "        assert batch.schema.names == ['id'], batch.schema.names\n"
        "        yield batch\n"
        "        yield batch.slice(0, 1)\n"
    )
    around = load_function(f"{path}:twice", "_late_before")
    given = pa.record_batch({"id": [1, 2], "_late_before": [7, 7]})
    found = pa.Table.from_batches(around(iter([given])))
    assert found.schema.names == ["_late_before", "id"]
    assert found.to_pydict() == {"_late_before": [7, 7, 7], "id": [1, 2, 1]}
    assert list(around(iter([]))) == []
