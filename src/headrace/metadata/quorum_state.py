"""`quorum-state`: what this node remembers of elections, in Kafka's own JSON.

Must be on disk before anything in it is used: a node that forgets an epoch could lead it twice, one
that forgets a vote could give a second one. Version 1 is written; version 0, which has no directory
ids and names the voters, is read as well.
"""

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from headrace.core.errors import StartupRefused
from headrace.core.files import FileSystem
from headrace.core.ids import LeaderEpoch, NodeId
from headrace.log.checkpoints import replace_file
from headrace.log.partition_metadata import decode_uuid, encode_uuid

FILE: Final = "quorum-state"
NOBODY: Final = NodeId(-1)
NO_DIRECTORY: Final = UUID(int=0)
EPOCH_MAX: Final = 2**31 - 1
VERSION: Final = 1
ID_MAX: Final = 2**31 - 1


class UnreadableQuorumState(StartupRefused):
    """The file is there and says nothing: this node may have voted, and does not know for whom."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The newest epoch this node knows, who leads it, and whom this node voted for in it."""

    leader_epoch: LeaderEpoch
    leader_id: NodeId = NOBODY
    voted_id: NodeId = NOBODY
    voted_directory_id: UUID = NO_DIRECTORY

    def encode(self) -> bytes:
        fields = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
            "votedDirectoryId": encode_uuid(self.voted_directory_id),
            "data_version": VERSION,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "QuorumState":
        """Raises `ValueError`, `KeyError` or `TypeError` where it is not such a file."""
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, VERSION):
            raise ValueError(f"version {version!r}")
        return cls(
            LeaderEpoch(_number(fields, "leaderEpoch", 0, EPOCH_MAX - 1)),
            NodeId(_number(fields, "leaderId", NOBODY, ID_MAX)),
            NodeId(_number(fields, "votedId", NOBODY, ID_MAX)),
            NO_DIRECTORY if version == 0 else decode_uuid(fields["votedDirectoryId"]),
        )


def _number(fields: dict[str, object], name: str, low: int, high: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}")
    return value


def store(files: FileSystem, directory: str, state: QuorumState) -> None:
    """On disk when this returns."""
    replace_file(files, f"{directory}/{FILE}", state.encode(), durable=True)
    files.sync_directory(directory)


def load(files: FileSystem, directory: str) -> QuorumState | None:
    """What was last stored; None if nothing ever was."""
    path = f"{directory}/{FILE}"
    if not files.exists(path):
        return None
    try:
        return QuorumState.decode(files.read_file(path))
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableQuorumState(
            f"{path} is unreadable ({error!r}): this node may have voted in an election and does"
            " not remember for whom",
            hint="restore the file from a backup, or remove this node from the quorum's voters and"
            " add it again with an empty directory",
        ) from error
