"""`headrace archive verify|replay`.

A module per command (`verify`, `replay`); `needs` says what must be installed for them.
"""

import typer

from headrace.cli.archive import replay, verify


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Check archives of topics (Delta tables, Parquet files) and replay them.",
        no_args_is_help=True,
    )
    for command in (verify, replay):
        command.register(group)
    app.add_typer(group, name="archive")
