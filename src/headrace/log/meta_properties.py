"""`meta.properties`: whose data a directory holds; a wrong owner must not start on it."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from headrace.core.errors import StartupRefused
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.runtime import Randomness
from headrace.log.checkpoints import encode_properties, parse_properties, replace_file
from headrace.log.names import META_PROPERTIES
from headrace.log.partition_metadata import decode_uuid, encode_uuid

VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Cluster and node a data directory belongs to, and the directory's own id."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID

    def encode(self) -> bytes:
        values = {
            "version": VERSION,
            "cluster.id": self.cluster_id,
            "node.id": self.node_id,
            "directory.id": encode_uuid(self.directory_id),
        }
        return encode_properties(values)


def load_or_create(
    files: FileSystem,
    path: str,
    randomness: Randomness,
    *,
    node_id: NodeId,
    cluster_id: str | None,
) -> MetaProperties:
    """The identity of the directory, which must be the one asked for; a new directory gets one.

    Without `cluster_id` any cluster is fine, and a new directory founds its own.
    """
    file = f"{path}/{META_PROPERTIES}"
    if not files.exists(file):
        found = MetaProperties(
            cluster_id or encode_uuid(randomness.uuid()), node_id, randomness.uuid()
        )
        # Synced, because half a file would refuse every later start; and so would partitions
        # without this file, so its name is on disk before there are any.
        replace_file(files, file, found.encode(), durable=True)
        files.sync_directory(path)
        return found
    found = _parse(files.read_file(file), file)
    if found.node_id != node_id:
        raise StartupRefused(
            f"{path} belongs to node {found.node_id}, this is node {node_id}",
            hint="start with the node.id in meta.properties, or with another directory",
        )
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise StartupRefused(
            f"{path} belongs to cluster {found.cluster_id}, not to {cluster_id}",
            hint="start with the cluster id in meta.properties, or with another directory",
        )
    return found


def _parse(data: bytes, path: str) -> MetaProperties:
    values = parse_properties(data)
    try:
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}")
        return MetaProperties(
            values["cluster.id"],
            NodeId(int(values["node.id"])),
            decode_uuid(values["directory.id"]),
        )
    except (KeyError, ValueError) as error:
        raise StartupRefused(
            f"{path} is not a meta.properties of version 1: {error!r}",
            hint="restore the file from a backup; without it the directory's owner is unknown",
        ) from error
