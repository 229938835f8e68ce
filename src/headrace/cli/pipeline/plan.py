"""`headrace pipeline plan FILE`: the pipeline as Python."""

from typing import Annotated

import typer

from headrace.cli.pipeline.sessions import File, Servers, Settings, loaded, require_spark


def register(group: typer.Typer) -> None:
    group.command()(plan)


def plan(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="As `run --once` has it.", show_default=False)
    ] = False,
    servers: Servers = None,
    settings: Settings = None,
) -> None:
    """Print the calls of Spark that a pipeline amounts to, as a Python program.

    It is what `run` does, not a description of it, and runs by itself. Spark is not started, and
    passwords are not printed.
    """
    require_spark()
    print(loaded(file, settings).plan(servers, once), end="")
