"""Reads through Spark: whole topics, streams, typed JSON, small batches, memory."""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.spark import topics
from bench.spark.rows import Values
from bench.spark.session import Costs
from bench.spark.sides import Side, in_turn

STREAM_BATCHES = 4
_PLANNED_BATCHES = 200
_SETTLING_BATCHES = 8
_SMALL_ROUNDS_MAX = 2
_SAMPLE_SECONDS = 0.5
_MEGABYTE = 1_000_000
_ROW_BYTES = 108  # the value, the key


@dataclass(frozen=True, slots=True)
class Measuring:
    """What every measure needs: where to run, on which sides, how often, and where values go."""

    spark: SparkSession
    sides: Sequence[Side]
    rows: int
    warm_rounds: int
    rounds: int
    values: Values
    costs: Costs

    def each_side(self, measure: str, rate_of: Callable[[Side], float]) -> None:
        """Take the rate of every side in every round; the first rounds warm up."""
        for counts, sides in in_turn(self.sides, self.warm_rounds, self.rounds):
            for side in sides:
                _wake(self.spark, side)
                if not counts:
                    rate_of(side)
                    continue
                with self.costs.noted(measure, side.name, side.broker.pid, self.rows):
                    rate = rate_of(side)
                self.values.add(measure, rate, side.name)


def _wake(spark: SparkSession, side: Side) -> None:
    """A few rows, so that workers are there which Spark may have let go while others ran."""
    batch(spark, side, topics.WAKING).write.format("noop").mode("overwrite").save()


def options(side: Side, topic: str) -> dict[str, str]:
    """A topic from its start."""
    return {
        "kafka.bootstrap.servers": side.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def batch(spark: SparkSession, side: Side, topic: str) -> DataFrame:
    """The whole topic."""
    return spark.read.format(side.format).options(**options(side, topic)).load()


def stream(spark: SparkSession, side: Side, topic: str, rows: int, **more: str) -> DataFrame:
    """The topic as a stream, so many rows a batch."""
    reader = spark.readStream.format(side.format).options(**options(side, topic))
    return reader.option("maxOffsetsPerTrigger", rows).options(**more).load()


def triggers(frame: DataFrame, sink: str = "noop", mode: str = "append") -> list[tuple[int, float]]:
    """Rows and seconds of every batch of a run over what is there."""
    with tempfile.TemporaryDirectory() as directory:
        writer = frame.writeStream.format(sink).outputMode(mode)
        writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
        if sink != "noop":
            writer = writer.option("path", f"{directory}/table")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [json.loads(each.json) for each in query.recentProgress]
    return [
        (each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000)
        for each in progress
        if each["numInputRows"]
    ]


def steady_rate(batches: list[tuple[int, float]]) -> float:
    """krow/s without the first batch, which starts workers and connections."""
    later = batches[1:] or batches
    return sum(rows for rows, _ in later) / sum(seconds for _, seconds in later) / 1000


def _require(rows: int, wanted: int) -> None:
    """A rate is worth nothing if not every row was read."""
    if rows != wanted:
        raise RuntimeError(f"{rows} rows were read, not {wanted}")


def measure_batch(run: Measuring, topic: str) -> None:
    """A whole topic to nowhere, which cannot tell how much came: it is counted before."""
    for side in run.sides:
        _require(batch(run.spark, side, topic).count(), run.rows)

    def rate(side: Side) -> float:
        started = time.monotonic()
        batch(run.spark, side, topic).write.format("noop").mode("overwrite").save()
        return run.rows / (time.monotonic() - started) / 1000

    run.each_side("batch read", rate)


def measure_stream(run: Measuring, topic: str) -> None:
    """The same as a stream of several large batches."""

    def rate(side: Side) -> float:
        frame = stream(run.spark, side, topic, run.rows // STREAM_BATCHES)
        batches = triggers(frame)
        _require(sum(rows for rows, _ in batches), run.rows)
        return steady_rate(batches)

    run.each_side("stream read", rate)


def measure_json(run: Measuring, topic: str) -> None:
    """JSON documents counted by window."""
    typed = {**_TYPED, "columns": "timestamp,value,_error"}

    def rate(side: Side) -> float:
        more = typed if side.is_ours else {}
        frame = stream(run.spark, side, topic, run.rows // STREAM_BATCHES, **more)
        batches = triggers(_counted(frame, side), mode="complete")
        _require(sum(rows for rows, _ in batches), run.rows)
        return steady_rate(batches)

    run.each_side("json windows", rate)


_TYPED = {"valueFormat": "json", "valueSchema": topics.JSON_SCHEMA}


def _counted(frame: DataFrame, side: Side) -> DataFrame:
    """Counts per second and item, of columns that are typed already or have to be parsed."""
    if side.is_ours:
        found = frame.where("_error is null").select("timestamp", "value.item")
    else:
        parsed = f.from_json(f.col("value").cast("string"), topics.JSON_SCHEMA)
        found = frame.select("timestamp", parsed.alias("value")).select("timestamp", "value.item")
    return found.groupBy(f.window("timestamp", "1 second"), "item").count()


class SmallTopics(NamedTuple):
    """Topics for small batches: two partitions, but for the last one."""

    plain: str
    clicks: str
    few: str
    many: str


def measure_small(run: Measuring, read: SmallTopics) -> None:
    """Small batches: what one costs, with state, and over many partitions."""
    spark, ours, values = run.spark, run.sides[0], run.values

    def p50_ms(frame: DataFrame, mode: str = "append") -> float:
        later = triggers(frame, mode=mode)[_SETTLING_BATCHES:]
        return statistics.median(seconds for _, seconds in later) * 1000

    for _ in range(min(run.rounds, _SMALL_ROUNDS_MAX)):
        values.add("micro-batch", p50_ms(stream(spark, ours, read.plain, 1_000)))
        windowed = _counted(stream(spark, ours, read.clicks, 1_000, **_TYPED), ours)
        values.add("micro-window", p50_ms(windowed, "update"))
        few_ms = p50_ms(stream(spark, ours, read.few, 6_400))
        many_ms = p50_ms(stream(spark, ours, read.many, 6_400))
        values.add("2 partitions", few_ms)
        values.add("64 partitions", many_ms)
        values.add("64 over 2", many_ms / few_ms)


def measure_memory(run: Measuring, topic: str, gigabytes: float) -> None:
    """How far driver, Java and workers grow while a topic is read again and again."""
    passes = max(2, round(gigabytes * 1e9 / (run.rows * _ROW_BYTES)))
    batch(run.spark, run.sides[0], topic).write.format("noop").mode("overwrite").save()
    with _MemoryWatch(run.costs.memory_bytes) as watch:
        for _ in range(passes):
            batch(run.spark, run.sides[0], topic).write.format("noop").mode("overwrite").save()
    run.values.add("memory read through: GB", passes * run.rows * _ROW_BYTES / 1e9)
    run.values.add("memory grown", max(watch.sizes) - watch.sizes[0])
    _measure_planner(run, topic)


def _measure_planner(run: Measuring, topic: str) -> None:
    """The same for the planner of a stream of many batches, which lives as long as the stream.

    Alone: Java's heap grows as far as it may, whatever is read.
    """
    frame = stream(run.spark, run.sides[0], topic, run.rows // _PLANNED_BATCHES)
    with tempfile.TemporaryDirectory() as directory:
        writer = frame.writeStream.format("noop").option("checkpointLocation", directory)
        query = writer.trigger(availableNow=True).start()
        while query.isActive and len(query.recentProgress) < _SETTLING_BATCHES:
            time.sleep(_SAMPLE_SECONDS)
        with _MemoryWatch(run.costs.planner_bytes) as watch:
            query.awaitTermination()
        read = sum(json.loads(each.json)["numInputRows"] for each in query.recentProgress)
    _require(read, run.rows)
    run.values.add("memory grown by a planner", max(watch.sizes) - watch.sizes[0])


class _MemoryWatch:
    """Looks at the memory of some processes twice a second, until it is left."""

    def __init__(self, bytes_now: Callable[[], int]) -> None:
        self._bytes_now = bytes_now
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.sizes: list[float] = []

    def __enter__(self) -> _MemoryWatch:
        self.sizes.append(self._size())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.sizes.append(self._size())

    def _size(self) -> float:
        return self._bytes_now() / _MEGABYTE
