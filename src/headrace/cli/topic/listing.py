"""`headrace topic list`."""

from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json, print_table


def register(group: typer.Typer) -> None:
    group.command("list")(list_topics)


def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """List the topics with their partitions and replicas."""
    as_json = wants_json(output)
    with connect(bootstrap) as client:
        found = client.admin.list_topics(internal=internal)
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
            "id": str(topic.topic_id),
        }
        for topic in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["topic", "partitions", "replicas", "id"], [list(r.values()) for r in rows])
