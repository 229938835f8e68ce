"""`headrace group list`."""

from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json, print_table

STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Dead",
)


def register(group: typer.Typer) -> None:
    group.command("list")(list_groups)


def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="|".join(STATES),
            help="Only groups in this state, in any case; may be repeated.",
        ),
    ] = None,
    group_type: Annotated[
        str | None, typer.Option("--type", metavar="classic|consumer", help="Only of this type.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """List the groups with their states; `Empty` ones have offsets and no members."""
    as_json = wants_json(output)
    if group_type not in (None, "classic", "consumer"):
        raise typer.BadParameter(
            f"{group_type!r} is neither classic nor consumer", param_hint="--type"
        )
    states = [_state(word) for word in state or ()]
    with connect(bootstrap) as client:
        types = () if group_type is None else (group_type,)
        found = client.admin.list_groups(states=states, types=types)
    rows = [
        {"group": each.group_id, "state": each.state, "type": each.group_type} for each in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["group", "state", "type"], [list(row.values()) for row in rows])


def _state(word: str) -> str:
    """The state as brokers spell it; they would answer an unknown one with no groups at all."""
    known = {name.lower(): name for name in STATES}
    if word.lower() not in known:
        raise typer.BadParameter(f"{word!r} is not {', '.join(STATES)}", param_hint="--state")
    return known[word.lower()]
