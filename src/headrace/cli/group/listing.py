"""`headrace group list`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.group.lag import deleted_note, total_lag
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import UNKNOWN, print_json, print_table
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client, PartitionLag

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
    """List the groups with their states and lag; `Empty` ones have offsets and no members."""
    as_json = wants_json(output)
    if group_type not in (None, "classic", "consumer"):
        raise typer.BadParameter(
            f"{group_type!r} is neither classic nor consumer", param_hint="--type"
        )
    states = [_state(word) for word in state or ()]
    with connect(bootstrap) as client:
        types = () if group_type is None else (group_type,)
        found = client.admin.list_groups(states=states, types=types)
        lags = _lags(client, [each.group_id for each in found])
    rows: list[dict[str, Any]] = [
        {
            "group": each.group_id,
            "state": each.state,
            "type": each.group_type,
            "lag": total_lag(lags.get(each.group_id, ())),
            "deleted": sum(lag.deleted for lag in lags.get(each.group_id, ())),
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["group", "state", "type", "lag"]
    shown = [[UNKNOWN if row[name] is None else row[name] for name in columns] for row in rows]
    print_table(columns, shown, right=["lag"])
    for row in rows:
        if row["deleted"]:
            print(f"{row['group']}: {deleted_note(row['deleted'])}")


def _lags(client: "Client", groups: list[str]) -> "dict[str, list[PartitionLag]]":
    """Nothing where it cannot be told: groups are listed all the same."""
    try:
        return client.admin.group_lags(groups, members=False, starts=True) if groups else {}
    except HeadraceError:
        return {}


def _state(word: str) -> str:
    """The state as brokers spell it; they would answer an unknown one with no groups at all."""
    known = {name.lower(): name for name in STATES}
    if word.lower() not in known:
        raise typer.BadParameter(f"{word!r} is not {', '.join(STATES)}", param_hint="--state")
    return known[word.lower()]
