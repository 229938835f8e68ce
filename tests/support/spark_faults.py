"""Sinks that fail or die at a chosen point, once, and the check of what they left.

The points are those of a batch: a task before its first row and after its last, the driver
before the sink's commit and after it. What lies between is Spark's own business.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from headrace.spark.format import HeadraceFormat

Point = Literal["task-start", "task-end", "before-commit", "after-commit"]
POINTS: tuple[Point, ...] = ("task-start", "task-end", "before-commit", "after-commit")
NAME = "headrace-faulty"
# What the faulty format needs, beside the options of the real one.
_POINT, _BATCH, _MARKER = "fault.point", "fault.batch", "fault.marker"


class InjectedFault(Exception):
    """Raised on purpose."""


def arm(marker: Path, pids: Iterable[int] = ()) -> None:
    """Make the next visit of the point fail; with pids, by killing those processes."""
    marker.write_text(" ".join(str(pid) for pid in pids))


def fault_options(point: Point, marker: Path, batch: int = 1) -> dict[str, str]:
    """Options that place the fault in a batch of a stream."""
    return {_POINT: point, _BATCH: str(batch), _MARKER: str(marker)}


def register(spark: SparkSession) -> None:
    """Make `format("headrace-faulty")` known to a session."""
    # Executors have no tests to import: the classes travel with the query.
    register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # cloudpickle
    spark.dataSource.register(FaultyFormat)


class FaultyFormat(HeadraceFormat):
    """The format itself, with a writer around its stream writers."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        fault = {name: self.options[name] for name in (_POINT, _BATCH, _MARKER)}
        for name in fault:
            del self.options[name]
        inner: Any = super().streamWriter(schema, overwrite)
        return _Around(inner, fault)


class _Around(DataSourceStreamArrowWriter):
    def __init__(self, inner: Any, fault: dict[str, str]) -> None:
        self._inner, self._fault = inner, fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        self._visit("task-start", batch)
        message = self._inner.write(iterator)
        self._visit("task-end", batch)
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._visit("before-commit", batchId)
        self._inner.commit(messages, batchId)
        self._visit("after-commit", batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._inner.abort(messages, batchId)

    def _visit(self, point: str, batch: int) -> None:
        if (point, str(batch)) != (self._fault[_POINT], self._fault[_BATCH]):
            return
        marker = Path(self._fault[_MARKER])
        try:
            pids = [int(each) for each in marker.read_text().split()]
            marker.unlink()  # whoever removes it is the one to fail, and the only one
        except FileNotFoundError:
            return
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        while pids:
            time.sleep(1)  # nothing more may happen here: the JVM takes this process with it
        raise InjectedFault(f"at {point} of batch {batch}")


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
