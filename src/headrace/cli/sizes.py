"""What topics take on disk, as brokers tell it."""

from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.core.ids import TopicPartition


def bytes_on_disk(client: "Client") -> "dict[TopicPartition, int]":
    """Of every partition, all replicas together; nothing where one may not ask."""
    sizes: dict[TopicPartition, int] = {}
    try:
        directories = client.admin.describe_log_dirs()
    except HeadraceError:
        return {}
    for directory in directories:
        for replica in directory.replicas:
            sizes[replica.partition] = sizes.get(replica.partition, 0) + replica.size_bytes
    return sizes
