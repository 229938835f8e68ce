"""`watch`: hears of every batch from Spark, and passes it on to whoever shows it."""

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.core.errors import InvalidConfig
from headrace.spark.progress.atomic_write import replace_text
from headrace.spark.progress.history import History, history_of
from headrace.spark.progress.late import LateRows
from headrace.spark.progress.measures import Progress, from_spark
from headrace.spark.progress.prometheus import Counters, MetricsServer
from headrace.spark.progress.report import FORMATS, render
from headrace.spark.progress.terminal import Screen, open_screen

logger = logging.getLogger(__name__)

REPORT_EVERY_SECONDS: Final = 2
# A report of a long history must not take a noticeable part of the driver's time.
REPORT_SHARE_MAX: Final = 0.05
LAST_EVENTS_SECONDS: Final = 10


def watch(
    spark: SparkSession,
    *,
    names: Collection[str] | None = None,
    terminal: bool = True,
    metrics: str | None = None,
    report: Path | None = None,
    title: str | None = None,
) -> "Watching":
    """Watch the queries of a session, those of these names or all, until `close`.

    `metrics` is the HOST:PORT of an address to scrape, on this machine if only a port is given;
    `report` a file .html or .svg, with its history beside it as .report.jsonl. Queries that were
    started before are watched from their next batch on.
    """
    if report is not None and report.suffix not in FORMATS:
        raise InvalidConfig(f"report: {report} must end in {' or '.join(FORMATS)}")
    if report is not None and report.is_dir():
        raise InvalidConfig(f"report: {report} is a directory")
    try:
        watching = Watching(names=names, report=report, title=title)
    except OSError as error:
        raise InvalidConfig(f"report: cannot write beside {report}: {error}") from error
    try:
        watching.open(spark, metrics=metrics, terminal=terminal)
    except BaseException:
        watching.close()
        raise
    return watching


class Watching:
    """What is known of the queries watched; close it when they have ended, or use `with`."""

    def __init__(
        self,
        *,
        names: Collection[str] | None = None,
        report: Path | None = None,
        title: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = None if names is None else frozenset(names)
        self._report = report
        self._title = title or (report.stem if report else "")
        self._clock = clock
        self._history = History(history_of(report) if report else None)
        self._report_at = float("-inf")
        self._late: dict[str, LateRows] = {}
        self._since = time.time()
        self._counters = Counters()
        self._server: MetricsServer | None = None
        self._screen: Screen | None = None
        self._spark: SparkSession | None = None
        self._listener: ProgressListener | None = None
        self._running: dict[str, str] = {}
        self._changed = threading.Condition()

    def __enter__(self) -> "Watching":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def history(self) -> list[Progress]:
        """Every batch, those of earlier runs in the report's history included."""
        with self._changed:
            return self._history.batches

    @property
    def late(self) -> dict[str, LateRows]:
        """By query, the rows that came too late since this began to watch."""
        with self._changed:
            return {query: replace(late) for query, late in self._late.items()}

    @property
    def metrics_address(self) -> str | None:
        """HOST:PORT where metrics are served."""
        return self._server.address if self._server is not None else None

    def open(self, spark: SparkSession, *, metrics: str | None, terminal: bool) -> None:
        """Begin to listen."""
        if metrics is not None:
            self._server = MetricsServer(metrics, self._counters)
        if terminal:
            self._screen = open_screen()
        self._spark, self._listener = spark, ProgressListener(self)
        spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Hear the last of queries that have ended, stop listening, write the report."""
        spark, listener = self._spark, self._listener
        self._spark = self._listener = None
        if spark is not None and listener is not None:
            self._await_last_events(spark)
            try:
                spark.streams.removeListener(listener)
            except Exception as error:  # py4j's and gRPC's, if the session is gone
                logger.debug("listener was not removed: error=%s", error)
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        if self._server is not None:
            self._server.close()
            self._server = None
        if listener is not None:
            with self._changed:
                self._write_report(now=True)

    def _await_last_events(self, spark: SparkSession) -> None:
        """Spark tells of batches some time after they ended: wait for the end of each query."""
        deadline = time.monotonic() + LAST_EVENTS_SECONDS
        try:
            active = {str(query.id) for query in spark.streams.active}
        except Exception as error:  # as above
            logger.debug("session is gone: error=%s", error)
            return
        with self._changed:
            self._changed.wait_for(
                lambda: not self._running.keys() - active, max(0, deadline - time.monotonic())
            )

    # What the listener calls, from threads of Spark's.

    def started(self, query_id: str, name: str) -> None:
        with self._changed:
            if self._is_watched(name):
                self._running[query_id] = name
                self._counters.started(name)
                if self._screen is not None:
                    self._screen.started(name)

    def progressed(self, told: dict[str, Any]) -> None:
        progress = from_spark(told, self._since)
        with self._changed:
            if not self._is_watched(progress.query):
                return
            self._running[str(told["id"])] = progress.query
            self._counters.count(progress)
            self._late.setdefault(progress.query, LateRows()).add(progress)
            try:
                self._history.add(progress)
            except (OSError, InvalidConfig) as error:
                logger.warning("history was not written: error=%s", error)
            if self._screen is not None:
                self._screen.show(progress)
            self._write_report()
            self._changed.notify_all()

    def terminated(self, query_id: str, error: str | None) -> None:
        with self._changed:
            name = self._running.pop(query_id, None)
            if name is not None:
                self._counters.ended(name, failed=error is not None)
                if self._screen is not None:
                    self._screen.ended(name, error)
            self._changed.notify_all()

    def _is_watched(self, name: str) -> bool:
        return self._names is None or name in self._names

    def _write_report(self, *, now: bool = False) -> None:
        if self._report is None:
            return
        began = self._clock()
        if began < self._report_at and not now:
            return
        try:
            batches, suffix = self._history.batches, self._report.suffix
            text = render(batches, suffix, self._title, is_live=self._listener is not None)
            replace_text(self._report, text)
        except OSError as error:
            logger.warning("report was not written: error=%s", error)
        ended = self._clock()
        self._report_at = ended + max(REPORT_EVERY_SECONDS, (ended - began) / REPORT_SHARE_MAX)


class ProgressListener(StreamingQueryListener):
    """Takes Spark's events to plain calls; what goes wrong there must not reach the query."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802, as Spark names it
        with _kept_from_spark():
            self._watching.started(str(event.id), event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        with _kept_from_spark():
            self._watching.progressed(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with _kept_from_spark():
            self._watching.terminated(str(event.id), event.exception)


@contextmanager
def _kept_from_spark() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("progress was not shown")
