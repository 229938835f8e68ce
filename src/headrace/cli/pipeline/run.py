"""`headrace pipeline run FILE`: its queries, until they end or are told to stop."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.pipeline.sessions import (
    File,
    Master,
    Servers,
    Settings,
    loaded,
    require_spark,
    spark_for,
)
from headrace.cli.process import STOP_SIGNALS

if TYPE_CHECKING:
    from headrace.spark.pipeline.run import Run

_POLL_SECONDS = 0.5
_STOP_SECONDS = 10


def register(group: typer.Typer) -> None:
    group.command()(run)


def run(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Do what is there now, then end.", show_default=False)
    ] = False,
    master: Master = None,
    servers: Servers = None,
    settings: Settings = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve progress to Prometheus at /metrics.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Draw throughput and lag over time into a page (.html) or picture (.svg).",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Neither progress nor Spark's log on stderr.", show_default=False
        ),
    ] = False,
) -> None:
    """Run a pipeline until it is stopped (Ctrl-C, SIGTERM), or with --once until it is done.

    It goes on where its checkpoint ends. Exit code 0 when it was stopped or is done, 1 when the
    file is wrong or a query failed (the others are then stopped too), 3 when no broker answers,
    4 when more rows came too late than `on_late` allows.
    """
    require_spark()
    from headrace.spark.pipeline.run import TooManyLateRows
    from headrace.spark.progress import watch

    pipeline = loaded(file, settings)
    pipeline.require_startable(servers)
    with stop_on_signals() as stop, _tolerating_errors_after_stop(stop):
        spark = spark_for(pipeline, master, silent=quiet)
        try:
            stop.started()
            if stop.asked.is_set():
                return
            pipeline.require_settings(spark)
            watching = watch(
                spark,
                names=set(pipeline.query_names),
                terminal=not quiet,
                metrics=metrics,
                report=report,
                title=pipeline.name,
            )
            # Before the queries start, so that their first batches are seen too.
            with watching:
                started = pipeline.start(spark, once, servers)
                _print(f"running {', '.join(started.queries)}")
                try:
                    _wait_until_ended(started, stop)
                except TooManyLateRows:
                    raise  # it says itself how many
                except Exception:
                    _report_late(started)
                    raise
            _report_late(started)
        finally:
            spark.stop()


class StopRequest:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._is_starting = True

    def arm(self) -> None:
        """Take the signals; Spark takes SIGINT for itself when a session starts."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._ask)

    def started(self) -> None:
        """Spark is up: from here on a stop is quick."""
        self._is_starting = False
        self.arm()

    def _ask(self, *_: object) -> None:
        if self._is_starting and not self.asked.is_set():
            # By the descriptor: a handler may come in the middle of a write to the stream.
            os.write(2, b"headrace: stopping as soon as Spark has started\n")
        self.asked.set()


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Signals ask to stop rather than end the process; as before afterwards."""
    stop = StopRequest()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    stop.arm()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _tolerating_errors_after_stop(stop: StopRequest) -> Iterator[None]:
    """Who asks us to stop may have asked Spark's processes too, which end at once.

    As service managers do, that send a signal to every process of a service. The batch that was
    under way then is cut off, and whatever is asked of Spark fails.
    """
    try:
        yield
    except Exception as error:  # of ours, of Python's or of Java's side
        # By name: the class is known only once Spark has been imported.
        if not stop.asked.is_set() or type(error).__name__ == "TooManyLateRows":
            raise
        _print("stopped; Spark had ended before, and the next run does again what was cut off")


def _wait_until_ended(started: "Run", stop: StopRequest) -> None:
    # Short looks from this thread: a signal is only noticed between calls into the JVM.
    while not stop.asked.is_set():
        if started.wait(timeout=0):
            return
        stop.asked.wait(_POLL_SECONDS)
    _print("stopping, after the batch that is under way")
    started.stop(patience=_STOP_SECONDS)
    started.refuse_late()


def _report_late(ended: "Run") -> None:
    """Said with --quiet too: rows that are in no result must never go without a word."""
    for query, late in sorted(ended.late.items()):
        _print(f"{query}: {late}" if len(ended.queries) > 1 else str(late))


def _print(what: str) -> None:
    print(f"headrace: {what}", file=sys.stderr, flush=True)
