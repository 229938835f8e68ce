"""Pipelines as Python: what `plan` prints, with no Spark started."""

from __future__ import annotations

import ast

import pytest

from headrace.core.errors import InvalidConfig
from headrace.spark.pipeline import load
from headrace.spark.pipeline.calls import (
    Call,
    Name,
    Secret,
    assignment_of,
    call,
    evaluate,
    options,
    source_of,
)
from tests.unit.spark.pipeline.test_spec_reader import SMALL

WHOLE = """
name: clicks
bootstrap_servers: broker:9092
checkpoint: /checkpoint
trigger: {every: 2 seconds}
source:
  topics: [clicks, taps]
  from: {timestamp: "2026-01-01T00:00:00Z"}
  value: {format: json, schema: "item int, at timestamp"}
  commit_group: group
  options: {kafka.security.protocol: SSL, kafka.ssl.key.password: hush}
on_bad_record: {dead_letter: bad}
settings: {spark.sql.shuffle.partitions: 2}
steps:
  - filter: item > 0
sinks:
  - delta: {path: /table, partition_by: [date]}
  - topic: {name: counts, key: [window, item], mode: update}
    name: by-item
    steps:
      - window: {time: at, size: 1 minute, watermark: 30 seconds, by: [item], agg: {n: count(*)}}
"""


def test_a_plan_is_the_program_of_all_sinks() -> None:
    plan = load(WHOLE).plan()
    ast.parse(plan)
    assert plan.count('spark.readStream.format("headrace")') == 2
    assert 'spark = session("clicks", settings={"spark.sql.shuffle.partitions": "2"})' in plan
    assert '    .option("startingTimestamp", "1767225600000")\n' in plan
    assert '    .trigger(processingTime="2 seconds")\n' in plan
    assert '    .groupBy(F.window("at", "1 minute"), "item")\n' in plan
    assert '    .queryName("clicks-by-item")\n' in plan
    assert '    .option("checkpointLocation", "/checkpoint/by-item")\n' in plan
    assert "\nfor query in [delta_query, by_item_query]:\n" in plan


def test_the_first_sink_sends_dead_letters_and_the_others_leave_them_out() -> None:
    first, second = load(WHOLE).plan().split("# clicks-by-item")
    assert '.option("deadLetterTopic", "bad")' in first
    assert '.where("_error IS NULL")' not in first
    assert "deadLetterTopic" not in second
    assert '.where("_error IS NULL")' in second


def test_late_rows_are_counted_before_the_first_step_that_leaves_them_out() -> None:
    first, second = load(WHOLE).plan().split("# clicks-by-item")
    assert "watermarkCheckpoint" not in first
    assert '.option("watermarkCheckpoint", "/checkpoint/by-item")' in second
    assert 'by_item = count_late(by_item, "at", size="1 minute")\n' in second
    assert second.index("count_late") < second.index("withWatermark")


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        ("select: [item, at]", True),
        ("select: ['*', 'item + 1 AS next']", True),
        ("join: {table: {format: csv, path: /a}, on: [item]}", True),
        ("sql: SELECT * FROM input", False),
    ],
)
def test_steps_before_pass_the_watermark_on_or_nothing_is_counted(step: str, counts: bool) -> None:
    text = WHOLE.replace("  - filter: item > 0\n", f"  - {step}\n")
    second = load(text).plan().split("# clicks-by-item")[1]
    assert ("count_late(" in second, "_late_before" in second) == (counts, counts)
    if "'*'" in step:
        assert '.selectExpr("*", "item + 1 AS next")' in second


def test_mode_complete_leaves_no_row_out_and_some_settings_hide_by_what() -> None:
    complete = WHOLE.replace("mode: update", "mode: complete")
    assert "count_late" not in load(complete).plan()
    setting = "spark.sql.streaming.statefulOperator.allowMultiple: false"
    other = WHOLE.replace("settings: {", f"settings: {{{setting}, ")
    assert "count_late" not in load(other).plan()


def test_each_of_several_sinks_has_a_group() -> None:
    plan = load(WHOLE).plan()
    assert '.option("commitGroup", "group-delta")' in plan
    assert '.option("commitGroup", "group-by-item")' in plan


def test_secrets_are_not_printed_and_sinks_reach_their_brokers_as_the_source_does() -> None:
    plan = load(WHOLE).plan()
    assert "hush" not in plan
    assert plan.count('"kafka.ssl.key.password", "*****"') == 2
    assert '"kafka.security.protocol": "SSL", "kafka.ssl.key.password": "*****"' in plan


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("spark.hadoop.fs.s3a.access.key", True),
        ("fs.azure.account.key.store.dfs.core.windows.net", True),
        ("fs.azure.sas.container.store", True),
        ("kafka.sasl.jaas.config", True),
        ("kafka.ssl.keystore.key", True),
        ("spark.hadoop.fs.s3a.session.TOKEN", True),
        ("kafka.sasl.mechanism", False),
        ("kafka.ssl.keystore.location", False),
        ("key.deserializer", False),
    ],
)
def test_what_is_secret_is_told_by_its_name(name: str, is_secret: bool) -> None:
    [(_, value)] = options({name: "hush"})
    assert ("hush" not in source_of(value)) == is_secret


def test_only_what_is_used_is_imported() -> None:
    plan = load(SMALL).plan("broker:9092", once=True)
    assert plan.startswith("from headrace.spark.session import session\n\nspark = session(")
    assert '.option("kafka.bootstrap.servers", "broker:9092")' in plan
    assert ".trigger(availableNow=True)" in plan


def test_without_brokers_there_is_no_plan() -> None:
    with pytest.raises(InvalidConfig, match="has no bootstrap_servers"):
        load(SMALL).plan()


def test_names_of_sinks_become_names_of_python() -> None:
    text = (
        SMALL
        + "    name: 1-st\n  - console:\n    name: spark\n  - console:\n    name: sink_spark\n"
    )
    plan = load(text).plan("broker:9092")
    assert "for query in [sink_1_st_query, sink_spark_query, sink_spark__query]:" in plan


def test_other_settings_go_before_those_of_the_file() -> None:
    pipeline = load(WHOLE).with_settings({"spark.sql.shuffle.partitions": "8", "spark.x": "y"})
    assert pipeline.spec.spark_settings == {"spark.sql.shuffle.partitions": "8", "spark.x": "y"}


def test_what_is_written_is_what_is_done() -> None:
    expression = call(call(Name("text"), "replace", "a", 'b"\n'), "split", sep="b", maxsplit=1)
    names = {"text": "xaxa"}
    assert evaluate(expression, names) == eval(source_of(expression), names)


def test_a_query_of_several_lines_is_printed_in_lines() -> None:
    step = "steps:\n  - sql: |\n      SELECT 'a' AS x\n      FROM input\n"
    plan = load(SMALL + step).plan("broker:9092")
    ast.parse(plan)
    assert 'console = spark.sql("""SELECT \'a\' AS x\nFROM input\n""")\n' in plan


def test_long_calls_have_a_line_each() -> None:
    chain: Call = call(Name("x"), "first", "a" * 50)
    text = assignment_of("y", call(chain, "second", (("b", Secret("c")),), flag=True))
    ast.parse(text)
    assert text.splitlines()[-2] == '    .second({"b": "*****"}, flag=True)'
