"""`headrace topic describe NAME`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, Topic, connect, wants_json
from headrace.cli.output import print_json, print_table, size
from headrace.cli.sizes import bytes_on_disk

if TYPE_CHECKING:
    from headrace.client import Client


def register(group: typer.Typer) -> None:
    group.command()(describe)


def describe(
    topic: Topic,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="All in force, not only those set on the topic.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Show a topic's partitions with their offsets and size on disk, and its configs."""
    as_json = wants_json(output)
    with connect(bootstrap) as client:
        found = gather(client, topic, all_configs=all_configs)
    if as_json:
        print_json(found)
        return
    print(f"{topic}  id {found['id']}")
    partitions = found["partitions"]
    columns = [*partitions[0]][:-1]
    rows = [[*(row[name] for name in columns), size(row["bytes"])] for row in partitions]
    print_table([*columns, "size"], rows, right=["size"])
    if found["configs"]:
        print_table(["config", "value"], list(found["configs"].items()))


def gather(client: "Client", topic: str, *, all_configs: bool) -> dict[str, Any]:
    """Everything the command shows, as plain values."""
    from headrace.client import (
        EARLIEST,
        LATEST,
        ConfigResource,
        ConfigResourceType,
    )
    from headrace.core.config_keys import ConfigSource
    from headrace.core.ids import TopicPartition

    described = client.admin.describe_topics([topic])[topic]
    all_partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
    starts = client.admin.list_offsets(dict.fromkeys(all_partitions, EARLIEST))
    ends = client.admin.list_offsets(dict.fromkeys(all_partitions, LATEST))
    held = bytes_on_disk(client)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    configs = client.admin.describe_configs([resource])[resource]
    return {
        "topic": topic,
        "id": str(described.topic_id),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "epoch": each.leader_epoch,
                "replicas": _numbers(each.replicas),
                "in sync": _numbers(each.in_sync),
                "start": starts[TopicPartition(topic, each.partition)].offset,
                "end": ends[TopicPartition(topic, each.partition)].offset,
                "bytes": held.get(TopicPartition(topic, each.partition)),
            }
            for each in described.partitions
        ],
        "configs": {
            name: entry.value
            for name, entry in sorted(configs.items())
            if all_configs or entry.source == ConfigSource.TOPIC_CONFIG
        },
    }


def _numbers(nodes: Any) -> str:
    return ",".join(str(node) for node in nodes)
