"""`check`: what would go wrong is told with its line, all of it, and no record is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.pipeline import load
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.support.pipelines import Written

STEPS_FILE = "def broken(:\n"


def found(spark: SparkSession, text: str, servers: str) -> list[str]:
    """What is wrong, as `line: message`."""
    problems = load(text).check(spark, servers)
    return [f"{each.line}: {each.message}" for each in problems]


def test_all_problems_of_a_pipeline_are_told_at_once(
    spark: SparkSession, broker: Broker, make_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, target = make_topic(), make_topic("target")
    (tmp_path / "steps.py").write_text(STEPS_FILE)
    text = f"""
name: clicks
checkpoint: {tmp_path}/checkpoint
source:
  topics: [{topic}, no-such-topic]
  value: {{format: json, schema: "item int, price double, at timestamp"}}
on_bad_record: {{dead_letter: no-letters}}
steps:
  - filter: prise > 0
  - filter: price
sinks:
  - delta: {{path: {tmp_path}/table}}
    steps:
      - sql: |
          SELECT item,
                 nothing
          FROM input
  - topic: {{name: no-such-sink}}
  - topic: {{name: {target}, value: price}}
    name: number
  - parquet: {{path: {tmp_path}/files, partition_by: [nothing]}}
  - console: {{mode: complete}}
  - console:
    name: function
    steps:
      - python: {{function: "{tmp_path}/steps.py:broken", schema: "a int"}}
"""
    said = found(spark, text, broker.bootstrap_servers)
    assert not spark.catalog.tableExists("input")
    beginnings = [
        "5: the topic no-such-topic does not exist",
        "7: the topic no-letters does not exist",
        "9: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with "
        "name `prise` cannot be resolved. Did you mean one of the following? [`price`",
        "10: [DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN]",
        "16: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with "
        "name `nothing`",
        "18: the topic no-such-sink does not exist",
        "19: column 'value' is double, and must be string or binary: cast it",
        "21: partition_by: there is no column 'nothing'; there are item, price, at, ",
        "22: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: complete",
        f"26: cannot load {tmp_path}/steps.py: SyntaxError",
    ]
    assert len(said) == len(beginnings)
    for line, begins in zip(said, beginnings, strict=True):
        assert line.startswith(begins)


def test_a_check_reads_and_writes_nothing(
    spark: SparkSession, client: Client, topic: str, broker: Broker, tmp_path: Path
) -> None:
    written = Written(tmp_path, broker.bootstrap_servers, topic).table()
    written.source["commit_group"] = f"{topic}-group"
    assert written.load().check(spark) == []
    assert not (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "table").exists()
    assert client.admin.committed_offsets(f"{topic}-group") == {}
    assert not spark.streams.active


def test_a_schema_that_spark_cannot_read_is_told_where_it_stands(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    written = Written(tmp_path, broker.bootstrap_servers, topic, "id int, item strin").table()
    [problem] = written.load().check(spark)
    assert problem.message.startswith('schema: [UNSUPPORTED_DATATYPE] Unsupported data type "STRIN')


def test_a_table_with_other_columns_is_told(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    import pyarrow as pa

    write_deltalake(str(tmp_path / "table"), pa.table({"id": ["a"]}))
    written = Written(tmp_path, broker.bootstrap_servers, topic).step(select=["id"]).table()
    [problem] = written.load().check(spark)
    assert "column 'id' is integer here and string in the table" in problem.message


def test_an_upsert_is_checked_against_its_rows(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    written = Written(tmp_path, broker.bootstrap_servers, topic)
    written.table(upsert={"on": ["id"], "delete_when": "op = 'd'"})
    [problem] = written.load().check(spark)
    assert "delete_when=\"op = 'd'\" cannot be used" in problem.message
    lines = written.save().read_text().splitlines()
    assert lines[problem.line - 1].strip().startswith("delete_when:")


@pytest.mark.parametrize("wrong", ["sum(prise)", "sum(price", "no_such_sum(price)"])
def test_an_aggregate_that_spark_refuses_is_told_at_its_own_line(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, wrong: str
) -> None:
    agg = {"n": "count(*)", "total": wrong, "most": "max(price)"}
    window = {"time": "at", "size": "1 minute", "watermark": "1 minute", "agg": agg}
    written = Written(tmp_path, broker.bootstrap_servers, topic).step(window=window).table()
    [problem] = written.load().check(spark)
    lines = written.save().read_text().splitlines()
    assert lines[problem.line - 1].strip().startswith("total:")


def test_a_view_of_ones_own_is_not_overwritten(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    written = Written(tmp_path, broker.bootstrap_servers, topic).table()
    written.step(sql="SELECT * FROM input")
    spark.range(3).createOrReplaceTempView("input")
    try:
        [problem] = written.load().check(spark)
        assert spark.table("input").count() == 3
    finally:
        spark.catalog.dropTempView("input")
    assert problem.message == "this session has a view 'input' of its own: drop or rename it"


def test_a_broker_that_does_not_answer_is_told(topic: str, tmp_path: Path) -> None:
    written = Written(tmp_path, "127.0.0.1:1", topic).table()
    [problem] = written.load().check()
    assert (problem.line, problem.message[:17]) == (2, "no broker answers")


def test_partitions_that_do_not_exist_are_told(
    make_topic: TopicMaker, broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    written = Written(tmp_path, broker.bootstrap_servers, topic).table()
    written.source.pop("topics")
    written.source["assign"] = {topic: [1, 2]}
    assert [each.message for each in written.load().check()] == [f"there is no partition {topic}-2"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            {"window": {"time": "item", "size": "1 minute", "watermark": "1 minute",
                        "agg": {"n": "count(*)"}}},
            "[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE]",
        ),
        ({"python": {"function": "os:walk", "schema": "a bogus"}}, "[UNSUPPORTED_DATATYPE]"),
        ({"python": {"function": "os:path", "schema": "a int"}}, "os:path cannot be called"),
        ({"python": {"function": "os:nothing", "schema": "a int"}}, "os has no 'nothing'"),
        (
            {"stateful": {"function": "os:walk", "by": ["id"], "schema": "a int"}},
            "os:walk is not a subclass of pyspark's StatefulProcessor",
        ),
        (
            {"join": {"table": {"format": "delta", "path": "nowhere"}, "on": ["id"]}},
            "there is no Delta table at",
        ),
        ({"sql": "SELECT item FROM input ORDER BY item"}, "Sorting is not supported on streaming"),
    ],
)  # fmt: skip
def test_steps_that_spark_refuses_are_told(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, step: dict[str, object],
    said: str,
) -> None:  # fmt: skip
    written = Written(tmp_path, broker.bootstrap_servers, topic).step(**step).table()
    [problem] = written.load().check(spark)
    assert problem.message.startswith(said)
