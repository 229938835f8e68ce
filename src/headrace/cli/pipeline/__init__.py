"""`headrace pipeline run|check|plan|list|backfill`.

A module per command (`run`, `check`, `plan`, `list`, `backfill`); `sessions` makes the
Spark session that they need.
"""

import typer

from headrace.cli.pipeline import backfill, check, list, plan, run


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Run Spark pipelines that are written as YAML: topics to topics, tables and files.",
        no_args_is_help=True,
    )
    for command in (run, check, plan, list, backfill):
        command.register(group)
    app.add_typer(group, name="pipeline")
