"""`headrace topic delete NAME…`."""

import sys
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
    """Delete topics with all their records; exit 1 if one could not be deleted."""
    from headrace.core.errors import ApiError, ErrorCode

    as_json = wants_json(output)
    if not yes:
        typer.confirm(f"Delete {', '.join(topics)} and all their records?", abort=True, err=True)
    deleted: list[str] = []
    failed: dict[str, str] = {}
    with connect(bootstrap) as client:
        for topic in dict.fromkeys(topics):
            try:
                client.admin.delete_topics([topic])
                deleted.append(topic)
            except ApiError as error:
                missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                failed[topic] = "does not exist" if missing else str(error)
    if as_json:
        print_json({"deleted": deleted, "failed": failed})
    elif deleted:
        print(f"deleted {', '.join(deleted)}")
    for topic, reason in failed.items():
        print(f"headrace: not deleted: {topic}: {reason}", file=sys.stderr)
    if failed:
        sys.exit(1)
