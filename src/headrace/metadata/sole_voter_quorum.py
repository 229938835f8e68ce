"""The metadata quorum of one node: it elects itself, and what it has flushed is committed.

    append ──> unwritten ──(a worker)──> written, flushed ──> high watermark ──> committed

Batches that are appended while a flush is under way are written together afterwards and share the
next one. A batch that could not be written was never there, nor was any behind it. If a flush
fails, what is on disk is unknown: nothing more is appended until the log has been opened again.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from headrace.core.errors import ApiError, ErrorCode, StorageError, StorageUnavailable
from headrace.core.ids import LeaderEpoch, Offset
from headrace.core.runtime import Executor
from headrace.metadata.image import Image
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.quorum import QuorumListener, ReplicaKey
from headrace.metadata.quorum_state import QuorumState, UnreadableQuorumState
from headrace.metadata.records import MetadataRecord
from headrace.protocol.records.header import BatchHeader

FLUSH_RETRY_SECONDS = 0.1
RECORDS_PER_BATCH_MAX: Final = 10_000

logger = logging.getLogger(__name__)


class SoleVoterQuorum:
    """A `MetadataQuorum` that leads from its start to its end."""

    def __init__(self, log: MetadataLog, voter: ReplicaKey, executor: Executor) -> None:
        self._log = log
        self._voter = voter
        self._executor = executor
        self._listener: QuorumListener | None = None
        self.epoch = LeaderEpoch(0)
        self.high_watermark = Offset(0)
        self.end_offset = Offset(0)
        self._unwritten: list[Sequence[MetadataRecord]] = []
        self._failure: StorageError | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._writer: asyncio.Task[None] | None = None

    @property
    def failure(self) -> StorageError | None:
        # A snapshot may have been what found the disk to be broken.
        return self._failure or self._log.failure

    async def open(self, empty: Image) -> Image:
        return await self._executor.run(partial(self._open, empty))

    def _open(self, empty: Image) -> Image:
        image = self._log.open(empty)
        # Also what a killed process left in the page cache: it counts from here on.
        self._log.flush()
        self.high_watermark = self._log.end_offset
        return image

    async def start(self, listener: QuorumListener) -> None:
        await self._executor.run(self._start_epoch)
        self.high_watermark = self.end_offset = self._log.end_offset
        self._listener = listener
        self._writer = asyncio.get_running_loop().create_task(self._write_all())
        listener.committed(self.high_watermark)
        listener.elected(self.epoch)

    def _start_epoch(self) -> None:
        """Vote for itself, remember it, then say so in the log."""
        try:
            state = self._log.load_quorum_state()
        except UnreadableQuorumState as error:
            # It had nobody else to vote for: whatever it committed is in its log, with its epoch.
            logger.warning("the epoch is taken from the metadata log: reason=%s", error)
            state = None
        last = max(self._log.last_epoch, 0 if state is None else state.leader_epoch)
        self.epoch = LeaderEpoch(last + 1)
        voter = self._voter
        self._log.store_quorum_state(
            QuorumState(self.epoch, voter.id, voter.id, voter.directory_id)
        )
        self._log.append_leader_change(voter.id, self.epoch)
        self._log.flush()

    def append(self, epoch: LeaderEpoch, records: Sequence[MetadataRecord]) -> Offset:
        failure = self.failure
        if failure is not None:
            raise failure
        if epoch != self.epoch or self._writer is None or self._stopping:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        self._unwritten.append(records)
        self.end_offset = Offset(self.end_offset + len(records))
        self._wake.set()
        return self.end_offset

    def read(self, start: Offset, end: Offset) -> Iterator[tuple[memoryview, BatchHeader]]:
        return self._log.read(start, end)

    async def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._writer is not None:
            await self._writer

    def kill(self) -> None:
        self._stopping = True
        if self._writer is not None:
            self._writer.cancel()

    async def _write_all(self) -> None:
        while self._unwritten or not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._unwritten:
                batches, self._unwritten = self._unwritten, []
                try:
                    await self._write(batches)
                except Exception as error:
                    # After a failed flush, or a mistake of ours, nobody knows what the log holds.
                    self._failure = StorageError(f"the metadata log could not be written: {error}")
                    self._reject(self._failure)

    async def _write(self, batches: Sequence[Sequence[MetadataRecord]]) -> None:
        """In a worker, since thousands of records take their time to be encoded.

        A flush that could not be tried is tried until it is: the records are in the log and will
        be there after a restart, so to say that they are not would be a lie.
        """
        error, flushed = await self._executor.run(partial(self._append_and_flush, batches))
        while not flushed:
            await asyncio.sleep(FLUSH_RETRY_SECONDS)
            flushed = await self._executor.run(self._flush)
        if self._log.end_offset > self.high_watermark:
            self.high_watermark = self._log.end_offset
            assert self._listener is not None
            self._listener.committed(self.high_watermark)
        if error is not None:
            self._reject(StorageError(f"the metadata log could not be written: {error}"))

    def _append_and_flush(
        self, batches: Sequence[Sequence[MetadataRecord]]
    ) -> tuple[StorageError | None, bool]:
        failed: StorageError | None = None
        try:
            for records in _joined(batches):
                self._log.append(records, self.epoch)
        except StorageError as error:
            failed = error
        # Those before the one that failed are in the log, and stay there.
        return failed, self._flush()

    def _flush(self) -> bool:
        try:
            self._log.flush()
        except StorageUnavailable as error:
            logger.warning("flush of the metadata log put off: error=%s", error)
            return False
        return True

    def _reject(self, error: StorageError) -> None:
        """Nothing that was appended and is not committed will be."""
        logger.error("metadata could not be appended: error=%s", error)
        self._unwritten.clear()
        self.end_offset = self.high_watermark
        assert self._listener is not None
        self._listener.append_failed(error)


def _joined(batches: Sequence[Sequence[MetadataRecord]]) -> Iterator[list[MetadataRecord]]:
    """Fewer and larger batches; none is divided, so that a torn tail takes whole commands."""
    joined: list[MetadataRecord] = []
    for records in batches:
        if joined and len(joined) + len(records) > RECORDS_PER_BATCH_MAX:
            yield joined
            joined = []
        joined.extend(records)
    if joined:
        yield joined
