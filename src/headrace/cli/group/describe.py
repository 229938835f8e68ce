"""`headrace group describe NAME`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.group.lag import deleted_note, total_lag
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json, print_table

if TYPE_CHECKING:
    from headrace.client import Client, GroupDescription, MemberDescription

Group = Annotated[str, typer.Argument(help="Name of the group.", show_default=False)]


def register(group: typer.Typer) -> None:
    group.command()(describe)


def describe(
    group: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Show a group's members, and by partition what is committed, start, end and lag."""
    as_json = wants_json(output)
    with connect(bootstrap) as client:
        found = gather(client, group)
    if as_json:
        print_json(found)
        return
    print(
        f"{group}  {found['state']}  {found['type']}"
        + (f"  assignor {found['assignor']}" if found["assignor"] else "")
        + f"  coordinator {found['coordinator']}"
    )
    if found["members"]:
        rows = [
            [each["member"], each["instance"], each["client"], each["host"], shown(each["reads"])]
            for each in found["members"]
        ]
        print_table(["member", "instance", "client", "host", "reads"], rows)
    else:
        print("no members")
    if found["partitions"]:
        partitions = [_shown_row(each) for each in found["partitions"]]
        print_table(list(partitions[0]), [list(row.values()) for row in partitions])
        print(_shown_lag(found))
        for each in found["partitions"]:
            if each["deleted"]:
                where = f"{each['topic']} {each['partition']}"
                print(f"{where}: {deleted_note(each['deleted'])} (it starts at {each['start']})")


def gather(client: "Client", group: str) -> dict[str, Any]:
    """Everything the command shows, as plain values."""
    described = client.admin.describe_groups([group])[group]
    lags = client.admin.group_lags([group], starts=True)[group]
    return {
        "group": group,
        "state": described.state,
        "type": described.group_type,
        "assignor": described.assignor,
        "coordinator": described.coordinator,
        "members": _members(described),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "start": each.start,
                "end": each.end,
                "lag": each.lag,
                "deleted": each.deleted,
                "metadata": each.metadata,
                "member": None if each.member is None else each.member.member_id,
            }
            for each in lags
        ],
        "lag": total_lag(lags),
    }


def _members(described: "GroupDescription") -> list[dict[str, Any]]:
    return [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.client_host,
            "epoch": each.epoch,
            "reads": _by_topic(each.assignment),
            "shall read": None if each.target is None else _by_topic(each.target),
        }
        for each in described.members
    ]


def _by_topic(partitions: "Any") -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def shown(topics: dict[str, list[int]]) -> str:
    """`orders:0,1 bills:3`, as `group reset --topic` takes it."""
    return " ".join(f"{topic}:{','.join(map(str, each))}" for topic, each in topics.items())


def _shown_row(row: dict[str, Any]) -> dict[str, Any]:
    columns = ("topic", "partition", "committed", "start", "end", "lag", "member")
    return {name: "-" if row[name] is None else row[name] for name in columns}


def _shown_lag(found: dict[str, Any]) -> str:
    """The sum of what is known; that nothing is known must not look like having read it all."""
    if found["lag"] is None:
        return "lag - (nothing committed yet, or the ends are not known)"
    unknown = sum(each["lag"] is None for each in found["partitions"])
    rest = f" (unknown for {unknown} of {len(found['partitions'])} partitions)" if unknown else ""
    return f"lag {found['lag']}{rest}"


def named(member: "MemberDescription") -> str:
    """A member as people can find it."""
    return f"{member.instance_id or member.member_id} ({member.client_id} at {member.client_host})"
