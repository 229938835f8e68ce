"""What a controller, or a node that only follows, sees of the quorum that owns the metadata log.

Whoever agrees with whom is behind these two protocols: a sole voter, or voters that elect a leader.
Offsets are ends: all *below* an offset is appended, or committed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.core.errors import StorageError
from headrace.core.ids import LeaderEpoch, NodeId, Offset
from headrace.metadata.image import Image
from headrace.metadata.records import MetadataRecord
from headrace.protocol.records.header import BatchHeader


class ReplicaKey(NamedTuple):
    """A voter: a node with another disk is another one."""

    id: NodeId
    directory_id: UUID


class QuorumListener(Protocol):
    """Called on the event loop, in the order in which things happen; must not block or raise."""

    def committed(self, offset: Offset) -> None:
        """All below `offset` is committed, whoever appended it."""
        ...

    def elected(self, epoch: LeaderEpoch) -> None:
        """This node leads in `epoch` and may append behind what is in the log now, all of which
        is still to be committed before it can be built on."""
        ...

    def resigned(self, epoch: LeaderEpoch) -> None:
        """This node no longer leads in `epoch`. What it appended and was not told to be committed
        may be lost, or be committed by another leader."""
        ...

    def append_failed(self, error: StorageError) -> None:
        """What was appended here and was not told to be committed never will be; this node leads
        on, from the end of what is committed."""
        ...


class MetadataQuorum(Protocol):
    """The metadata log as it is agreed upon."""

    @property
    def high_watermark(self) -> Offset:
        """All below it is committed."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Where the next batch goes that the leader appends."""
        ...

    @property
    def failure(self) -> StorageError | None:
        """Why nothing can be appended any more; what is committed can still be read."""
        ...

    async def open(self, empty: Image) -> Image:
        """Open the log; return the image of the newest snapshot, or `empty`."""
        ...

    async def start(self, listener: QuorumListener) -> None:
        """Take part, and tell `listener` from now on. After `open`."""
        ...

    def append(self, epoch: LeaderEpoch, records: Sequence[MetadataRecord]) -> Offset:
        """Put `records` at the log's end as one batch; return the end behind them.

        Raises NOT_CONTROLLER where this node does not lead in `epoch`.
        """
        ...

    def read(self, start: Offset, end: Offset) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Every batch from `start` to `end`, which must be committed. Waits for the disk."""
        ...

    async def stop(self) -> None:
        """Finish what was appended; the log is closed with its directory."""
        ...

    def kill(self) -> None:
        """Stop at once, as the death of the process would."""
        ...
