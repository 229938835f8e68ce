"""`headrace group delete NAME…`."""

import sys
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json


def register(group: typer.Typer) -> None:
    group.command()(delete)


def delete(
    groups: Annotated[list[str], typer.Argument(help="Names.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Delete groups with all their offsets; exit 1 if one could not be deleted."""
    from headrace.core.errors import ApiError

    as_json = wants_json(output)
    if not yes:
        typer.confirm(f"Delete {', '.join(groups)} and all their offsets?", abort=True, err=True)
    deleted: list[str] = []
    failed: dict[str, str] = {}
    with connect(bootstrap) as client:
        for group in dict.fromkeys(groups):
            try:
                client.admin.delete_groups([group])
                deleted.append(group)
            except ApiError as error:
                failed[group] = f"{error}{f' ({error.hint})' if error.hint else ''}"
    if as_json:
        print_json({"deleted": deleted, "failed": failed})
    elif deleted:
        print(f"deleted {', '.join(deleted)}")
    for reason in failed.values():
        print(f"headrace: not deleted: {reason}", file=sys.stderr)
    if failed:
        sys.exit(1)
