"""A source and sinks that fail, die or wait to be killed at a chosen point, once, and the check.

The points are those of a batch, in their order:

    before-plan     the planner is asked how far the batch goes; the batch before it is finished
    after-plan      it has answered (and published group offsets), the answer is not written down
    after-offsets   the offsets of the batch are in the checkpoint, no task has begun
    reading         a task has read some of its rows
    task-start      a task of the sink before its first row
    task-middle     ... after some rows
    task-end        ... after its last row, before it has told the driver
    before-commit   all tasks have ended, the driver is about to commit to the sink
    after-commit    the sink has committed, the checkpoint does not know it yet

What lies between is Spark's own business.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.format import HeadraceFormat
from headrace.spark.source import StreamReader

Point = Literal[
    "before-plan",
    "after-plan",
    "after-offsets",
    "reading",
    "task-start",
    "task-middle",
    "task-end",
    "before-commit",
    "after-commit",
]
SOURCE_POINTS: tuple[Point, ...] = ("before-plan", "after-plan", "after-offsets", "reading")
POINTS: tuple[Point, ...] = (
    "task-start",
    "task-middle",
    "task-end",
    "before-commit",
    "after-commit",
)
NAME = "headrace-faulty"
# What the faulty format needs, beside the options of the real one.
_POINT, _BATCH, _MARKER, _SIZE = "fault.point", "fault.batch", "fault.marker", "fault.size"
_HOLD = "hold"
_HELD_SECONDS_MAX = 300


class InjectedFault(Exception):
    """Raised on purpose."""


def arm(marker: Path, pids: Iterable[int] = (), *, hold: bool = False) -> None:
    """Make the next visit of the point fail; with pids, by killing those processes.

    With `hold` it waits to be killed by others, who find its process in `held(marker)`.
    """
    marker.write_text(_HOLD if hold else " ".join(str(pid) for pid in pids))


def held(marker: Path) -> Path:
    """The file that the process id of the visitor is in, once it has come."""
    return marker.with_name(f"{marker.name}.held")


def fault_options(point: Point, marker: Path, batch: int = 1, size: int = 200) -> dict[str, str]:
    """Options that place the fault in a batch of a stream; `size` is that of a batch."""
    return {_POINT: point, _BATCH: str(batch), _MARKER: str(marker), _SIZE: str(size)}


def register(spark: SparkSession) -> None:
    """Make `format("headrace-faulty")` known to a session."""
    # Executors have no tests to import: the classes travel with the query.
    register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # cloudpickle
    spark.dataSource.register(FaultyFormat)


class FaultyFormat(HeadraceFormat):
    """The format itself, with its stream reader and its stream writers visiting the points."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._fault = {name: options.pop(name) for name in (_POINT, _BATCH, _MARKER, _SIZE)}
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        inner: Any = super().streamReader(schema)
        return _Reader(inner._options, schema, self._fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        inner: Any = super().streamWriter(schema, overwrite)
        return _Writer(inner, self._fault)


class _Reader(StreamReader):
    def __init__(self, options: Any, schema: StructType, fault: dict[str, str]) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def latestOffset(self, start: dict[str, Any], limit: Any) -> Any:  # noqa: N802
        visit(self._fault, "before-plan", self._number(start))
        end = super().latestOffset(start, limit)
        visit(self._fault, "after-plan", self._number(start))
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        visit(self._fault, "after-offsets", self._number(start))
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch_of_task()
        yield from _halves(super().read(partition), self._fault, "reading", batch)

    def _number(self, start: dict[str, Any]) -> int:
        """Nobody tells a planner the number of a batch, but batches are of one size here."""
        begun = sum(offset for parts in start.values() for offset in parts.values())
        return int(begun) // int(self._fault[_SIZE])


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, inner: Any, fault: dict[str, str]) -> None:
        self._inner, self._fault = inner, fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        batch = _batch_of_task()
        visit(self._fault, "task-start", batch)
        message = self._inner.write(_halves(iterator, self._fault, "task-middle", batch))
        visit(self._fault, "task-end", batch)
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        visit(self._fault, "before-commit", batchId)
        self._inner.commit(messages, batchId)
        visit(self._fault, "after-commit", batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._inner.abort(messages, batchId)


def _batch_of_task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty("streaming.sql.batchId") or -1)


def _halves(
    batches: Iterator[pa.RecordBatch], fault: dict[str, str], point: str, number: int
) -> Iterator[pa.RecordBatch]:
    """The same rows, with a visit between the halves of each piece."""
    for rows in batches:
        half = (rows.num_rows + 1) // 2
        yield rows.slice(0, half)
        visit(fault, point, number)
        if half < rows.num_rows:
            yield rows.slice(half)


def visit(fault: dict[str, str], point: str, batch: int) -> None:
    """Fail here, if it is here and now that somebody wants it."""
    if (point, str(batch)) != (fault[_POINT], fault[_BATCH]):
        return
    marker = Path(fault[_MARKER])
    try:
        order = marker.read_text()
        marker.unlink()  # whoever removes it is the one to fail, and the only one
    except FileNotFoundError:
        return
    if order == _HOLD:
        _wait_for_death(marker)
    pids = [int(each) for each in order.split()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    while pids:
        time.sleep(1)  # nothing more may happen here: the JVM takes this process with it
    raise InjectedFault(f"at {point} of batch {batch}")


def _wait_for_death(marker: Path) -> None:
    staging = marker.with_name(f"{marker.name}.staging")
    staging.write_text(str(os.getpid()))
    staging.rename(held(marker))
    deadline = time.monotonic() + _HELD_SECONDS_MAX
    while time.monotonic() < deadline:
        time.sleep(0.1)
    raise InjectedFault("nobody came to kill the task that waited for it")


@dataclass(frozen=True, slots=True)
class Compared:
    """What a sink holds against what it was to hold."""

    lost: int
    doubled: int
    strange: int


def compare(expected: Iterable[Any], found: Iterable[Any]) -> Compared:
    """Compare two collections of (partition, offset), doubles counted."""
    wanted, there = set(expected), Counter(found)
    return Compared(
        lost=len(wanted - there.keys()),
        doubled=sum(count - 1 for count in there.values()),
        strange=len(there.keys() - wanted),
    )
