"""The Spark session of a pipeline command, and what the commands need to have one."""

import importlib.util
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import parse_pairs
from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipeline import Pipeline

File = Annotated[str, typer.Argument(metavar="FILE.yaml", help="The pipeline.", show_default=False)]
Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "--bootstrap",  # as the other commands have it
        "-b",
        metavar="HOST:PORT",
        help="Brokers, instead of those that the file names.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: spark://HOST:7077, yarn, k8s://..., or sc://HOST:15002 for Spark "
        "Connect; by default all cores of this machine, or what spark-submit was told.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="spark.KEY=VALUE",
        help="A setting of Spark; goes before those of the file and may be repeated.",
        show_default=False,
    ),
]


class SparkNotStarted(HeadraceError):
    """There is no session: a wrong master or setting, or a cluster that does not answer."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


def require_spark() -> None:
    """Say what to install, rather than fail in the middle of an import."""
    for name in ("pyspark", "pyarrow", "numpy", "yaml"):
        if importlib.util.find_spec(name) is None:
            raise InvalidConfig(
                f"pipelines need the package {name}",
                hint="pip install '.[spark]' in a checkout of headrace",
            )


def loaded(file: str, settings: list[str] | None) -> "Pipeline":
    """The pipeline, with the settings of the command line before its own."""
    given = parse_pairs(settings, "--set", "spark.sql.shuffle.partitions=8")
    for name in given:
        if not name.startswith("spark."):
            raise typer.BadParameter(f"{name!r} is no setting of Spark", param_hint="--set")
    from headrace.spark.pipeline import load

    return load(file).with_settings(given)


@contextmanager
def _deferring_interrupt() -> Iterator[None]:
    """An interrupt waits until Spark has started, and then goes to whoever had it before.

    A Java that loses its Python while it starts would stay behind for ever. Spark's own handler is
    not kept: it asks Java to cancel jobs, in the middle of a call that waits for its answer.
    """
    before = signal.getsignal(signal.SIGINT)
    asked = threading.Event()

    def hold(*_: object) -> None:
        if not asked.is_set():
            # By the descriptor: a handler may come in the middle of a write to the stream.
            os.write(2, b"headrace: stopping as soon as Spark has started\n")
        asked.set()

    # Who interrupts a call into Java knows of it, and py4j would tell of it by traces.
    logging.getLogger().addFilter(_is_not_py4j_trace)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked.is_set():
        raise KeyboardInterrupt


def _is_not_py4j_trace(record: logging.LogRecord) -> bool:
    return "while sending command" not in record.getMessage()


def spark_for(pipeline: "Pipeline", master: str | None, *, silent: bool = False) -> "SparkSession":
    """A session with the pipeline's settings, that says little, or (`silent`) nothing."""
    from headrace.spark.session import session, terse

    settings = {"spark.ui.showConsoleProgress": "false", **pipeline.spec.spark_settings}
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # by spark-submit, whose Java runs already
        settings.setdefault("spark.log.level", "ERROR")
    try:
        with _deferring_interrupt(), terse(settings, silent=silent):
            return session(pipeline.name, master=master, settings=settings)
    except HeadraceError:
        raise
    except Exception as error:  # of Python's or of Java's side, with no common root
        from headrace.spark.pipeline.frames import reason

        raise SparkNotStarted(f"Spark did not start: {reason(error)}") from error
