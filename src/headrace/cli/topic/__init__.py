"""`headrace topic create|list|describe|alter|delete`.

A module per command: `create`, `listing`, `describe`, `alter`, `delete`.
"""

import typer

from headrace.cli.topic import alter, create, delete, describe, listing


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Create, look at, change and delete topics.", no_args_is_help=True)
    for command in (create, listing, describe, alter, delete):
        command.register(group)
    app.add_typer(group, name="topic")
