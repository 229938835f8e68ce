"""What is gone or is not what it should be: told by name, never guessed at, never dropped.

Checkpoints that were lost, topics made anew, records that retention took first, payloads that
cannot be read and columns that do not fit, each in a real session; the readers' own tests have the
finer cases without one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.client import Client, NewTopic, TopicPartition
from tests.integration.spark.conftest import Options, TopicMaker
from tests.integration.spark.test_sinks import archived, finish, from_start, places, records, stream
from tests.support.spark_faults import Compared, compare
from tests.support.spark_readers import numbered, send

JSON = {"valueFormat": "json", "valueSchema": "user string, item int"}
GOOD, BAD = b'{"user":"a","item":1}', b'{"user":"a","item":"many"}'


def archive(
    spark: SparkSession, source: dict[str, str], table: Path, checkpoint: str, **more: str
) -> None:
    writer = stream(spark, source).writeStream.format("headrace").options(**more)
    finish(writer.option("path", str(table)).option("checkpointLocation", checkpoint))


def test_a_lost_checkpoint_is_refused_by_the_table_and_the_way_on_is_told(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(client, topic, numbered(100))
    archive(spark, from_start(to, topic), table, checkpoint)
    shutil.rmtree(checkpoint)
    send(client, topic, numbered(50))
    with pytest.raises(PySparkException, match=r"the table was written by query .*otherQueries"):
        archive(spark, from_start(to, topic), table, checkpoint)
    assert compare(range(100), [offset for _, offset in archived(table)]) == Compared(0, 0, 0)

    ends = json.dumps({topic: {"0": 100}})
    shutil.rmtree(checkpoint)
    following = to(subscribe=topic, startingOffsets=ends)
    archive(spark, following, table, checkpoint, otherQueries="append")
    assert compare(places(client, topic), archived(table)) == Compared(0, 0, 0)


def test_a_checkpoint_from_before_the_last_batch_is_refused_by_the_table(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    """Its next batch has the number of one that the table has, but reads further."""
    table, copy = tmp_path / "table", tmp_path / "copy"
    send(client, topic, numbered(100))
    archive(spark, from_start(to, topic), table, checkpoint)
    shutil.copytree(checkpoint, copy)
    send(client, topic, numbered(50))
    archive(spark, from_start(to, topic), table, checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    send(client, topic, numbered(50))
    with pytest.raises(PySparkException, match="with other offsets than its checkpoint"):
        archive(spark, from_start(to, topic), table, checkpoint)
    assert compare(range(150), [offset for _, offset in archived(table)]) == Compared(0, 0, 0)


def test_a_lost_checkpoint_is_refused_by_its_group_whatever_the_sink(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
) -> None:
    target = make_topic()
    send(client, topic, numbered(100))

    def copy(start: str) -> None:
        source = to(subscribe=topic, startingOffsets=start, commitGroup=f"of-{topic}")
        writer = stream(spark, source).select("value").writeStream.format("headrace")
        finish(writer.options(**to(topic=target, checkpointLocation=checkpoint)))

    copy("earliest")
    shutil.rmtree(checkpoint)
    send(client, topic, numbered(50, 100))
    for start in ("earliest", "latest"):
        with pytest.raises(PySparkException, match="up to offset 100, and this query has no check"):
            copy(start)
    copy(json.dumps({topic: {"0": 100}}))
    found = [each.value for each in records(client, target)]
    assert compare(numbered(150), found) == Compared(0, 0, 0)


@pytest.mark.long
def test_sparks_own_parquet_sink_needs_a_group_to_notice_a_lost_checkpoint(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    """It skips batches by their number alone: the guide says so, until Spark does otherwise."""
    path, group = tmp_path / "parquet", f"of-{topic}"

    def copy(**more: str) -> None:
        rows = stream(spark, from_start(to, topic, **more)).writeStream.format("parquet")
        finish(rows.option("path", str(path)).option("checkpointLocation", checkpoint))

    send(client, topic, numbered(100))
    copy(commitGroup=group)
    shutil.rmtree(checkpoint)
    send(client, topic, numbered(50))
    with pytest.raises(PySparkException, match="up to offset 100, and this query has no check"):
        copy(commitGroup=group)
    shutil.rmtree(checkpoint)
    copy()
    found = [row.offset for row in spark.read.parquet(str(path)).collect()]
    assert compare(range(150), found) == Compared(lost=50, doubled=0, strange=0)


def test_a_topic_made_anew_stops_a_query_and_leaves_the_table_alone(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(client, topic, numbered(100))
    archive(spark, from_start(to, topic), table, checkpoint)
    client.admin.delete_topics([topic])
    client.admin.create_topics([NewTopic(topic, 1, 1)])
    send(client, topic, numbered(40))
    with pytest.raises(PySparkException, match="made anew"):
        archive(spark, from_start(to, topic), table, checkpoint)
    assert compare(range(100), [offset for _, offset in archived(table)]) == Compared(0, 0, 0)


def test_retention_that_overtakes_a_query_stops_it_or_costs_only_what_it_took(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(client, topic, numbered(100))
    archive(spark, from_start(to, topic), table, checkpoint)
    send(client, topic, numbered(100))
    client.admin.delete_records({TopicPartition(topic, 0): 150})
    with pytest.raises(PySparkException, match=r"offsets 100 to 149 .* are gone"):
        archive(spark, from_start(to, topic), table, checkpoint)
    archive(spark, from_start(to, topic, failOnDataLoss=False), table, checkpoint)
    left = [*range(100), *range(150, 200)]
    assert compare(left, [offset for _, offset in archived(table)]) == Compared(0, 0, 0)


def test_every_record_is_a_row_or_a_dead_letter_and_no_record_is_both(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    table, dead = tmp_path / "table", make_topic("dead")
    send(client, topic, [BAD if number % 7 == 3 else GOOD for number in range(200)])
    source = from_start(to, topic, deadLetterTopic=dead, maxOffsetsPerTrigger=90, **JSON)
    archive(spark, source, table, checkpoint)
    rows = [offset for _, offset in archived(table)]
    letters = [int(dict(each.headers)["headrace.offset"] or b"") for each in records(client, dead)]
    assert compare(range(200), rows + letters) == Compared(0, 0, 0)
    assert {offset % 7 for offset in letters} == {3}


def test_a_schema_that_changed_is_refused_before_anything_is_written(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(client, topic, [GOOD] * 10)
    archive(spark, from_start(to, topic, **JSON), table, checkpoint)
    send(client, topic, [GOOD] * 10)
    other = JSON | {"valueSchema": "user string, item bigint"}
    with pytest.raises(PySparkException, match=r"column 'value' is .*long.* here and .*integer"):
        archive(spark, from_start(to, topic, **other), table, checkpoint)
    archive(spark, from_start(to, topic, **JSON), table, checkpoint)
    assert compare(places(client, topic), archived(table)) == Compared(0, 0, 0)
