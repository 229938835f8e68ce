"""Writes through Spark: rows into topics, and topics into tables."""

from __future__ import annotations

import tempfile
import time
import uuid

from pyspark.sql import SparkSession

from bench.spark.reads import Side
from bench.spark.rows import OURS, Values
from headrace.client import Client, NewTopic

_PARTITIONS = 2
_STREAM_BATCHES = 6


def measure_write(
    spark: SparkSession, sides: list[Side], rows: int, rounds: int, values: Values
) -> None:
    """Rows of 100 bytes and keys of 8 into a fresh topic; the first round warms up."""
    frame = spark.range(rows).selectExpr(
        "lpad(CAST(id AS STRING), 8, '0') AS key", "lpad(CAST(id AS STRING), 100, 'x') AS value"
    )
    for number in range(rounds + 1):
        for side in sides:
            topic = _fresh_topic(side.servers)
            started = time.monotonic()
            frame.write.format(side.format).option("kafka.bootstrap.servers", side.servers).option(
                "topic", topic
            ).mode("append").save()
            rate = rows / (time.monotonic() - started) / 1000
            _drop(side.servers, topic)
            if number:
                values.add("write", rate, side.name)


def measure_tables(
    spark: SparkSession, sides: list[Side], topic: str, rows: int, rounds: int, values: Values
) -> None:
    """A topic as a stream into Parquet by every side, and into Delta by ours."""
    for _ in range(rounds):
        for side in sides:
            values.add("to parquet", _archived(spark, side, topic, rows, "parquet"), side.name)
            if side.name == OURS:
                values.add("to delta", _archived(spark, side, topic, rows, "headrace"))


def _archived(spark: SparkSession, side: Side, topic: str, rows: int, sink: str) -> float:
    """krow/s of a run in several batches, without the first, which warms up."""
    reader = spark.readStream.format(side.format).option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", side.servers)
    reader = reader.option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", rows // _STREAM_BATCHES).load()
    with tempfile.TemporaryDirectory() as directory:
        writer = frame.writeStream.format(sink).option("path", f"{directory}/table")
        writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [
            (each.numInputRows, each.durationMs["triggerExecution"])
            for each in query.recentProgress
            if each.numInputRows
        ]
    later = batches[1:] or batches
    return sum(count for count, _ in later) / sum(spent_ms for _, spent_ms in later)


def _fresh_topic(servers: str) -> str:
    name = f"written-{uuid.uuid4().hex[:8]}"
    with Client(servers) as client:
        client.admin.create_topics([NewTopic(name, _PARTITIONS, 1)])
    return name


def _drop(servers: str, topic: str) -> None:
    """Away with it, so that the disk does not fill while others are measured."""
    with Client(servers) as client:
        client.admin.delete_topics([topic])
