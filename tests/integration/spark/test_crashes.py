"""Drivers killed with SIGKILL before and after each point where something is written down.

A driver in a process of its own dies in batch 1 of 3; the query then goes on from its checkpoint,
in the session that the tests share, and the sink is compared with the source offset by offset. One
case runs each time, the others in the long form. The points are in `tests.support.spark_faults`.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.archive import verify
from tests.integration.spark.conftest import Options, TopicMaker
from tests.integration.spark.test_sinks import archived, places, records
from tests.support import spark_jobs
from tests.support.spark_drivers import Driver, DriverDied
from tests.support.spark_faults import (
    POINTS,
    SOURCE_POINTS,
    Compared,
    Point,
    arm,
    compare,
    fault_options,
)
from tests.support.spark_readers import numbered, send

ALL_POINTS: tuple[Point, ...] = (*SOURCE_POINTS, *POINTS)
# Where a sink that only appends would write twice, and where one that commits too early loses.
SHORT: tuple[Point, ...] = ("after-commit",)
TRIES = 5

pytestmark = pytest.mark.timeout(900)


class CrashingQuery:
    """One stream, the driver that dies of it, and the session in which it goes on."""

    def __init__(
        self,
        log_path: Path,
        source: dict[str, str],
        sink: dict[str, str],
        columns: list[str],
        sink_format: str = "headrace",
    ) -> None:
        self._log_path = log_path
        self._given: dict[str, Any] = {
            "source": source,
            "sink": sink,
            "columns": columns,
            "sink_format": sink_format,
        }

    def dies_at(self, point: Point, batch: int = 1) -> None:
        """Run it in a driver until it is killed there."""
        marker = self._log_path.with_name("marker")
        side = "source" if point in SOURCE_POINTS else "sink"
        given = {**self._given, side: self._given[side] | fault_options(point, marker, batch)}
        self._dies(**given, faulty=side, marker=str(marker))
        assert not marker.exists(), f"{point} was never visited"

    def dies_when_there_is(self, file: Path) -> None:
        """Run it in a driver that is killed as soon as a file is there."""
        self._dies(**self._given, kill_when=str(file))

    def goes_on(self, spark: SparkSession) -> None:
        """Run it to its end from its checkpoint."""
        spark_jobs.stream(spark, **self._given)

    def _dies(self, **given: Any) -> None:
        with Driver("local[2]", self._log_path) as driver:
            with pytest.raises(DriverDied) as died:
                driver.call("stream", **given)
            assert died.value.code == -signal.SIGKILL, str(died.value)


def from_zero(to: Options, topic: str, **more: object) -> dict[str, str]:
    """From the first record on, by number: then the first batch has rows, and not only a start."""
    return to(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}}), **more)


def cases(points: tuple[Point, ...]) -> list[Any]:
    long = pytest.mark.long
    return [each if each in SHORT else pytest.param(each, marks=long) for each in points]


@pytest.fixture
def filled(client: Client, make_topic: TopicMaker) -> str:
    """A topic with 300 records in each of two partitions: three batches of 200."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        send(client, topic, numbered(300, 300 * partition), partition=partition)
    return topic


def published(client: Client, group: str) -> int:
    """The sum of what a group has committed, 0 if there is no such group yet."""
    return sum(each.offset for each in client.admin.committed_offsets(group).values())


@pytest.mark.parametrize("point", cases(ALL_POINTS))
def test_a_driver_killed_in_a_batch_leaves_each_row_in_the_table_once(
    spark: SparkSession,
    client: Client,
    filled: str,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    """... and its group is never ahead of the table, in which others may look for its rows."""
    group, table = f"of-{filled}", tmp_path / "table"
    query = CrashingQuery(
        tmp_path / "driver.out",
        from_zero(to, filled, maxOffsetsPerTrigger=200, commitGroup=group),
        {"path": str(table), "checkpointLocation": checkpoint},
        ["*"],
    )
    query.dies_at(point)
    before = compare(places(client, filled), archived(table))
    assert before == Compared(lost=200 if point == "after-commit" else 400, doubled=0, strange=0)
    assert published(client, group) == (0 if point == "before-plan" else 200), "batch 0 alone"
    query.goes_on(spark)
    assert compare(places(client, filled), archived(table)) == Compared(0, 0, 0)
    assert published(client, group) == 600


@pytest.mark.long
def test_a_driver_killed_after_a_batch_is_written_down_does_not_run_it_again(
    spark: SparkSession, client: Client, filled: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    table, target = tmp_path / "table", Path(checkpoint)
    query = CrashingQuery(
        tmp_path / "driver.out",
        from_zero(to, filled, maxOffsetsPerTrigger=200),
        {"path": str(table), "checkpointLocation": checkpoint},
        ["*"],
    )
    query.dies_at("before-plan", batch=2)
    assert (target / "commits" / "1").exists()
    assert compare(places(client, filled), archived(table)) == Compared(200, 0, 0)
    query.goes_on(spark)
    assert compare(places(client, filled), archived(table)) == Compared(0, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize("point", ALL_POINTS)
def test_a_driver_killed_in_a_batch_loses_no_row_on_its_way_to_a_topic(
    spark: SparkSession,
    client: Client,
    filled: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    target = make_topic(partitions=2)
    query = CrashingQuery(
        tmp_path / "driver.out",
        from_zero(to, filled, maxOffsetsPerTrigger=200),
        to(topic=target, checkpointLocation=checkpoint),
        ["value"],
    )
    query.dies_at(point)
    before = [each.value for each in records(client, target)]
    query.goes_on(spark)
    after = compare(numbered(600), [each.value for each in records(client, target)])
    # At least once: what was acknowledged before the end is written a second time, and no more.
    assert after == Compared(lost=0, doubled=len(before) - 200, strange=0)
    if point in ("before-commit", "after-commit"):
        assert after.doubled == 200, "every task had ended"
    elif point in ("before-plan", "after-plan", "after-offsets"):
        assert after.doubled == 0, "no task had begun"


@pytest.mark.long
@pytest.mark.parametrize("point", SOURCE_POINTS)
def test_a_driver_killed_in_a_batch_leaves_each_row_in_parquet_once(
    spark: SparkSession,
    filled: str,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    path = tmp_path / "parquet"
    query = parquet(to, filled, checkpoint, path)
    query.dies_at(point)
    assert sum(each.rows for each in verify(path)) == 200, "batch 0 alone"
    query.goes_on(spark)
    assert [(each.rows, each.is_whole) for each in verify(path)] == [(300, True)] * 2


@pytest.mark.long
def test_a_driver_killed_after_parquet_is_committed_does_not_write_it_again(
    spark: SparkSession, filled: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    """Nothing of ours runs between Spark's own commits, so the file is waited for: in vain, at
    times, if both are written before the driver dies."""
    for number in range(TRIES):
        path, place = tmp_path / f"parquet-{number}", Path(f"{checkpoint}-{number}")
        query = parquet(to, filled, str(place), path)
        query.dies_when_there_is(path / "_spark_metadata" / "1")
        if not (place / "commits" / "1").exists():
            break
    assert not (place / "commits" / "1").exists(), "it never died between the two"
    assert sum(each.rows for each in verify(path)) == 400
    query.goes_on(spark)
    assert [(each.rows, each.is_whole) for each in verify(path)] == [(300, True)] * 2


def parquet(to: Options, topic: str, checkpoint: str, path: Path) -> CrashingQuery:
    """The stream to Parquet files of Spark's own sink."""
    return CrashingQuery(
        path.with_name("driver.out"),
        from_zero(to, topic, maxOffsetsPerTrigger=200),
        {"path": str(path), "checkpointLocation": checkpoint},
        ["*"],
        sink_format="parquet",
    )


@pytest.mark.long
def test_a_driver_killed_in_its_first_batch_does_not_forget_where_latest_was(
    spark: SparkSession,
    client: Client,
    filled: str,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    """Batch 0 of a stream from the end is empty, and runs again when the end is another."""
    table = tmp_path / "table"
    query = CrashingQuery(
        tmp_path / "driver.out",
        to(subscribe=filled),
        {"path": str(table), "checkpointLocation": checkpoint},
        ["*"],
    )
    query.dies_at("after-offsets", batch=3)  # the planner counts from the start of the topic
    assert not (Path(checkpoint) / "commits" / "0").exists()
    for partition in (0, 1):
        send(client, filled, numbered(50), partition=partition)
    query.goes_on(spark)
    new = {(partition, offset) for partition in (0, 1) for offset in range(300, 350)}
    assert compare(new, archived(table)) == Compared(0, 0, 0)


@pytest.mark.parametrize("sink", ["headrace", pytest.param("parquet", marks=pytest.mark.long)])
def test_a_task_that_fails_while_it_reads_is_run_again_whole(
    spark: SparkSession,
    client: Client,
    filled: str,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    sink: str,
) -> None:
    marker, path = tmp_path / "marker", tmp_path / "rows"
    arm(marker)
    source = from_zero(to, filled, maxOffsetsPerTrigger=200)
    spark_jobs.stream(
        spark,
        source=source | fault_options("reading", marker),
        sink={"path": str(path), "checkpointLocation": checkpoint},
        columns=["*"],
        faulty="source",
        sink_format=sink,
    )
    assert not marker.exists()
    if sink == "headrace":
        assert compare(places(client, filled), archived(path)) == Compared(0, 0, 0)
    assert [(each.rows, each.is_whole) for each in verify(path)] == [(300, True)] * 2
