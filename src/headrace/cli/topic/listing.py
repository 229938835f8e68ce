"""`headrace topic list`."""

from typing import Annotated, Any

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json, print_table, size
from headrace.cli.sizes import bytes_on_disk
from headrace.core.ids import TopicPartition


def register(group: typer.Typer) -> None:
    group.command("list")(list_topics)


def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """List the topics with their partitions, replicas and size on disk."""
    as_json = wants_json(output)
    with connect(bootstrap) as client:
        found = client.admin.list_topics(internal=internal)
        held = bytes_on_disk(client)
    sizes = {
        topic.name: [held.get(TopicPartition(topic.name, p.partition)) for p in topic.partitions]
        for topic in found
    }
    rows: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
            "bytes": _sum(sizes[topic.name]),
            "id": str(topic.topic_id),
        }
        for topic in found
    ]
    if as_json:
        print_json(rows)
    else:
        columns = ["topic", "partitions", "replicas", "size", "id"]
        shown = [list({**row, "bytes": size(row["bytes"])}.values()) for row in rows]
        print_table(columns, shown, right=["size"])


def _sum(sizes: list[int | None]) -> int | None:
    """None where one is not known: part of a size would pass for the whole."""
    known = [each for each in sizes if each is not None]
    return sum(known) if len(known) == len(sizes) else None
