"""The Spark session of a pipeline command, and what the commands need to have one."""

import importlib.util
import os
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


def spark_for(pipeline: "Pipeline", master: str | None, *, silent: bool = False) -> "SparkSession":
    """A session with the pipeline's settings, that says little, or (`silent`) nothing."""
    from headrace.spark.session import session, terse

    settings = {"spark.ui.showConsoleProgress": "false", **pipeline.spec.spark_settings}
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # by spark-submit, whose Java runs already
        settings.setdefault("spark.log.level", "ERROR")
    try:
        with terse(settings, silent=silent):
            return session(pipeline.name, master=master, settings=settings)
    except HeadraceError:
        raise
    except Exception as error:  # of Python's or of Java's side, with no common root
        from headrace.spark.pipeline.frames import reason

        raise SparkNotStarted(f"Spark did not start: {reason(error)}") from error
