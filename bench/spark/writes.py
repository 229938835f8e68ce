"""Writes through Spark: rows into topics, and topics into tables."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

from bench.spark.reads import STREAM_BATCHES, Measuring, steady_rate, stream, triggers
from bench.spark.sides import OUR_FORMAT, Side
from headrace.client import Client, NewTopic

_PARTITIONS = 2


def measure_write(run: Measuring) -> None:
    """Rows of 100 bytes and keys of 8 into a fresh topic."""
    frame = run.spark.range(run.rows).selectExpr(
        "lpad(CAST(id AS STRING), 8, '0') AS key", "lpad(CAST(id AS STRING), 100, 'x') AS value"
    )

    def rate(side: Side) -> float:
        topic = _fresh_topic(side.servers)
        started = time.monotonic()
        frame.write.format(side.format).option("kafka.bootstrap.servers", side.servers).option(
            "topic", topic
        ).mode("append").save()
        taken = time.monotonic() - started
        _drop(side.servers, topic)
        return run.rows / taken / 1000

    run.each_side("write", rate)


def measure_parquet(run: Measuring, topic: str) -> None:
    """A topic as a stream into Parquet files, by Spark's own sink."""
    run.each_side("to parquet", lambda side: _archived(run, side, topic, "parquet"))


def measure_delta(run: Measuring, topic: str) -> None:
    """A topic as a stream into a Delta table, which only we write without a jar."""
    alone = replace(run, sides=[side for side in run.sides if side.is_ours])
    alone.each_side("to delta", lambda side: _archived(run, side, topic, OUR_FORMAT))


def _archived(run: Measuring, side: Side, topic: str, sink: str) -> float:
    frame = stream(run.spark, side, topic, run.rows // STREAM_BATCHES)
    return steady_rate(triggers(frame, sink))


def _fresh_topic(servers: str) -> str:
    name = f"written-{uuid.uuid4().hex[:8]}"
    with Client(servers) as client:
        client.admin.create_topics([NewTopic(name, _PARTITIONS, 1)])
    return name


def _drop(servers: str, topic: str) -> None:
    """Away with it, so that the disk does not fill while others are measured."""
    with Client(servers) as client:
        client.admin.delete_topics([topic])
