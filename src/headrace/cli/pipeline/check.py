"""`headrace pipeline check FILE`: everything that is wrong with it, and no record read."""

import sys

import typer

from headrace.cli.output import counted
from headrace.cli.pipeline.sessions import (
    File,
    Master,
    Servers,
    Settings,
    loaded,
    require_spark,
    spark_for,
)


def register(group: typer.Typer) -> None:
    group.command()(check)


def check(
    file: File, master: Master = None, servers: Servers = None, settings: Settings = None
) -> None:
    """Check a pipeline: its file, its topics, and by Spark its schemas and SQL.

    Nothing is read and nothing is written. Every problem is told with its line; exit code 1 if
    there is one, 3 when no broker answers.
    """
    require_spark()
    pipeline = loaded(file, settings)
    pipeline.require_broker(servers)
    spark = spark_for(pipeline, master)
    try:
        problems = pipeline.check(spark, servers)
    finally:
        spark.stop()
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print(f"{file}: {pipeline.name} is fine, with {counted(len(pipeline.spec.sinks), 'sink')}")
