"""`headrace log dump|verify`: look into data files without a broker.

A module per command (`dump`, `verify`); `segment_files` finds segments and walks their batches.
"""

import typer

from headrace.cli.log import dump, verify


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Look into data files on disk.", no_args_is_help=True)
    dump.register(group)
    verify.register(group)
    app.add_typer(group, name="log")
