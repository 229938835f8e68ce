"""`quorum-state`: what this node remembers of elections, in Kafka's own JSON.

Must be on disk before the epoch in it is used: a node that forgets an epoch could lead it twice.
"""

import json
import logging
from dataclasses import dataclass

from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.log.checkpoints import replace_file

FILE = "quorum-state"
NO_VOTE = NodeId(-1)
EPOCH_MAX = 2**31 - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The newest epoch this node knows, and who leads it."""

    leader_id: NodeId
    leader_epoch: int
    voters: tuple[NodeId, ...]

    def encode(self) -> bytes:
        fields = {
            "clusterId": "",
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": NO_VOTE,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in self.voters],
            "data_version": 0,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def store(files: FileSystem, directory: str, state: QuorumState) -> None:
    """On disk when this returns."""
    replace_file(files, f"{directory}/{FILE}", state.encode(), durable=True)
    files.sync_directory(directory)


def load_epoch(files: FileSystem, directory: str) -> int:
    """The epoch last stored; 0 if there is none.

    An unreadable file is no reason to stay down while this node is the whole quorum: whatever it
    committed is in its log, with its epoch.
    """
    path = f"{directory}/{FILE}"
    if not files.exists(path):
        return 0
    try:
        epoch = int(json.loads(files.read_file(path))["leaderEpoch"])
        if not 0 <= epoch < EPOCH_MAX:
            raise ValueError(f"{epoch} is no leader epoch")
        return epoch
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("quorum state is unreadable: path=%s reason=%s", path, error)
        return 0
