"""A metadata quorum that does what the test says, in the place of voters that agree."""

import asyncio
from collections.abc import Iterator, Sequence

from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import LeaderEpoch, NodeId, Offset
from headrace.metadata.image import Image
from headrace.metadata.quorum import QuorumListener
from headrace.metadata.records import MetadataRecord, encode_record
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import ControlType, encode_batch, encode_control_batch
from headrace.protocol.records.header import BatchHeader, parse_header
from headrace.protocol.records.patch import assign_offsets
from headrace.protocol.schemas.quorum import LeaderChangeMessage


class ScriptedQuorum:
    """Commits, elects and resigns when it is told to; every batch in it is real bytes."""

    def __init__(self) -> None:
        self.epoch = LeaderEpoch(0)
        self.high_watermark = Offset(0)
        self.failure: StorageError | None = None
        self.leads = False
        self.commits_at_once = True
        self._batches: list[tuple[memoryview, BatchHeader]] = []
        self._listener: QuorumListener | None = None

    @property
    def listener(self) -> QuorumListener:
        assert self._listener is not None
        return self._listener

    @property
    def end_offset(self) -> Offset:
        return Offset(self._batches[-1][1].last_offset + 1 if self._batches else 0)

    async def open(self, empty: Image) -> Image:
        return empty

    async def start(self, listener: QuorumListener) -> None:
        self._listener = listener
        self.elect()

    def append(self, epoch: LeaderEpoch, records: Sequence[MetadataRecord]) -> Offset:
        if self.failure is not None:
            raise self.failure
        if not self.leads or epoch != self.epoch:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        self.write(records)
        if self.commits_at_once:
            asyncio.get_running_loop().call_soon(self.commit)
        return self.end_offset

    def read(self, start: Offset, end: Offset) -> Iterator[tuple[memoryview, BatchHeader]]:
        for batch, header in self._batches:
            if start <= header.base_offset and header.last_offset < end:
                yield batch, header

    async def stop(self) -> None:
        return

    def kill(self) -> None:
        return

    # What a test does

    def elect(self) -> None:
        """Lead in a new epoch, whose first batch is in the log and not committed."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.leads = True
        self.control_batch()
        self.listener.elected(self.epoch)
        if self.commits_at_once:
            self.commit()

    def control_batch(self) -> None:
        """Append something of the quorum's own, which takes an offset."""
        change = LeaderChangeMessage(version=0, leader_id=NodeId(0), voters=[], granting_voters=[])
        control = [(ControlType.LEADER_CHANGE, change.encode(0))]
        self._append(
            encode_control_batch(control, base_offset=0, leader_epoch=self.epoch, timestamp=1)
        )

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Append as this leader does, or as another one."""
        self._append(
            encode_batch(
                Record(index, 1, None, encode_record(record), ())
                for index, record in enumerate(records)
            )
        )

    def _append(self, batch: bytearray) -> None:
        assign_offsets(memoryview(batch), 0, self.end_offset, self.epoch)
        self._batches.append((memoryview(batch), parse_header(batch)))

    def commit(self, batches: int | None = None) -> None:
        """Commit so many more batches, or all there are."""
        rest = [h for _, h in self._batches if h.base_offset >= self.high_watermark]
        for header in rest[:batches]:
            self.high_watermark = Offset(header.last_offset + 1)
        self.listener.committed(self.high_watermark)

    def resign(self) -> None:
        self.leads = False
        self.listener.resigned(self.epoch)

    def truncate(self) -> None:
        """What is not committed is lost: another leader never had it."""
        self._batches = [b for b in self._batches if b[1].base_offset < self.high_watermark]

    def fail_appends(self, error: StorageError, *, for_good: bool = False) -> None:
        self.truncate()
        self.failure = error if for_good else None
        self.listener.append_failed(error)
