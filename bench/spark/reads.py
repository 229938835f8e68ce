"""Reads through Spark: whole topics, streams, typed JSON, small batches, memory."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.spark import topics
from bench.spark.rows import OURS, Values

_STREAM_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Side:
    """A format and the broker it reads."""

    name: str
    format: str
    servers: str


def _options(side: Side, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": side.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def _batch(spark: SparkSession, side: Side, topic: str) -> DataFrame:
    return spark.read.format(side.format).options(**_options(side, topic)).load()


def _stream(spark: SparkSession, side: Side, topic: str, rows: int, **more: str) -> DataFrame:
    reader = spark.readStream.format(side.format).options(**_options(side, topic))
    return reader.option("maxOffsetsPerTrigger", rows).options(**more).load()


def _counted(frame: DataFrame, side: Side) -> DataFrame:
    """Counts per second and item, of columns that are typed already or have to be parsed."""
    if side.format == OURS:
        found = frame.where("_error is null").select("timestamp", "value.item")
    else:
        parsed = f.from_json(f.col("value").cast("string"), topics.JSON_SCHEMA)
        found = frame.select("timestamp", parsed.alias("value")).select("timestamp", "value.item")
    return found.groupBy(f.window("timestamp", "1 second"), "item").count()


def _triggers(frame: DataFrame, mode: str = "append") -> list[tuple[int, float]]:
    """Rows and seconds of every batch of a run over what is there."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").outputMode(mode)
        writer = writer.option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [json.loads(each.json) for each in query.recentProgress]
    return [
        (each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000)
        for each in progress
        if each["numInputRows"]
    ]


def _steady_rate(batches: list[tuple[int, float]]) -> float:
    """krow/s without the first batch, which warms up."""
    later = batches[1:] or batches
    return sum(rows for rows, _ in later) / sum(seconds for _, seconds in later) / 1000


def measure_batch(
    spark: SparkSession, sides: list[Side], topic: str, rows: int, rounds: int, values: Values
) -> None:
    """A whole topic to nowhere, sides by turns; the first round warms up."""
    for number in range(rounds + 1):
        for side in sides:
            started = time.monotonic()
            _batch(spark, side, topic).write.format("noop").mode("overwrite").save()
            rate = rows / (time.monotonic() - started) / 1000
            if number:
                values.add("batch read", rate, side.name)


def measure_stream(
    spark: SparkSession, sides: list[Side], topic: str, rows: int, rounds: int, values: Values
) -> None:
    """The same as a stream of several large batches."""
    for number in range(rounds + 1):
        for side in sides:
            frame = _stream(spark, side, topic, rows // _STREAM_BATCHES)
            rate = _steady_rate(_triggers(frame))
            if number:
                values.add("stream read", rate, side.name)


def measure_json(
    spark: SparkSession, sides: list[Side], topic: str, rows: int, rounds: int, values: Values
) -> None:
    """JSON documents counted by window."""
    typed = {"valueFormat": "json", "valueSchema": topics.JSON_SCHEMA}
    typed["columns"] = "timestamp,value,_error"
    for number in range(rounds + 1):
        for side in sides:
            more = typed if side.format == OURS else {}
            frame = _stream(spark, side, topic, rows // _STREAM_BATCHES, **more)
            rate = _steady_rate(_triggers(_counted(frame, side), "complete"))
            if number:
                values.add("json windows", rate, side.name)


def measure_small(
    spark: SparkSession, side: Side, plain: str, clicks: str, many: str, values: Values
) -> None:
    """Small batches: what one costs, with state, and over many partitions."""

    def p50_ms(frame: DataFrame, mode: str = "append") -> float:
        later = _triggers(frame, mode)[8:]
        return statistics.median(seconds for _, seconds in later) * 1000

    values.add("micro-batch", p50_ms(_stream(spark, side, plain, 1_000)))
    typed = {"valueFormat": "json", "valueSchema": topics.JSON_SCHEMA}
    windowed = _counted(_stream(spark, side, clicks, 1_000, **typed), side)
    values.add("micro-window", p50_ms(windowed, "update"))
    few_ms = p50_ms(_stream(spark, side, plain, 6_400))
    many_ms = p50_ms(_stream(spark, side, many, 6_400))
    values.add("2 partitions", few_ms)
    values.add("64 partitions", many_ms)
    values.add("64 over 2", many_ms / few_ms)


def measure_memory(
    spark: SparkSession, side: Side, topic: str, rows: int, gigabytes: float, values: Values
) -> None:
    """How far the driver's memory grows while a topic is read again and again."""
    process = psutil.Process()
    rounds = max(3, int(gigabytes * 1e9 / (rows * 120)))
    sizes = []
    for _ in range(rounds):
        _batch(spark, side, topic).write.format("noop").mode("overwrite").save()
        with _quietly():
            family = [process, *process.children(recursive=True)]
            sizes.append(sum(each.memory_info().rss for each in family) / 1e6)
    settled = sizes[len(sizes) // 3 :]
    values.add("memory grown", max(settled) - settled[0])


@contextmanager
def _quietly() -> Iterator[None]:
    """Workers come and go while they are counted."""
    try:
        yield
    except psutil.NoSuchProcess:
        return
