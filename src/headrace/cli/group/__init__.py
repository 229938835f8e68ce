"""`headrace group list|describe|reset|delete`.

A module per command (`listing`, `describe`, `reset`, `delete`); `lag` is how far a group is behind,
`offsets_file` the file that `reset` reads.
"""

import typer

from headrace.cli.group import delete, describe, listing, reset


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Look at consumer groups, move their offsets, delete them.", no_args_is_help=True
    )
    for command in (listing, describe, reset, delete):
        command.register(group)
    app.add_typer(group, name="group")
