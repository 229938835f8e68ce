"""`headrace topic delete NAME…`."""

from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json


def register(group: typer.Typer) -> None:
    group.command()(delete)


def delete(
    topics: Annotated[list[str], typer.Argument(help="Names.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Delete topics with all their records."""
    as_json = wants_json(output)
    if not yes:
        typer.confirm(f"Delete {', '.join(topics)} and all their records?", abort=True, err=True)
    with connect(bootstrap) as client:
        client.admin.delete_topics(topics)
    if as_json:
        print_json({"deleted": topics})
    else:
        print(f"deleted {', '.join(topics)}")
