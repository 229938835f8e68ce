"""One partition on disk, in three layers: append and read here, segments and durability below.

    log start ............... deleted before it
    recovery point .......... flushed, and checkpointed as such
    flushed offset .......... on disk for certain
    log end ................. the next offset to be given

Appends, reads, truncations and changes of config come from one thread (the event loop). Whatever
waits for the disk may run in a worker meanwhile, beside them and beside each other: `flush`,
`checkpoint`, `apply_retention`, `expire_producers`, `replace_segments`, `remove_deleted`, and the
searches by time. Appends wait for a worker only while it changes the segments or reads an index
of the newest segment (`_lock`), never for a sync; reads take no lock at all.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.core.errors import (
    ApiError,
    ErrorCode,
    OffsetOutOfRange,
    StorageError,
    StorageUnavailable,
)
from headrace.core.files import FileSystem, NotTried
from headrace.core.ids import LeaderEpoch, Offset, TopicId
from headrace.core.runtime import Clock
from headrace.log import partition_metadata, recovery
from headrace.log.config import LogConfig
from headrace.log.leader_epoch_cache import LeaderEpochCache
from headrace.log.producer_state import BatchMetadata, ProducerStates
from headrace.log.rolling import roll_due, roll_limit_ms
from headrace.log.segment import EMPTY_SLICE, LogSlice, Segment
from headrace.log.segments import LogSegments
from headrace.log.shaped_log import ShapedLog
from headrace.log.timestamps import TimestampedOffset, first_at_or_after, latest_timestamp
from headrace.protocol.records.header import LENGTH_OVERHEAD, BatchHeader, iterate_headers
from headrace.protocol.records.patch import assign_offsets

logger = logging.getLogger(__name__)

# Position in the buffer, header as it came, last offset as it will be.
Placed = list[tuple[int, BatchHeader, int]]


class AppendInfo(NamedTuple):
    """Where a produced batch lies, for the response to its producer."""

    first_offset: Offset
    last_offset: Offset
    append_time_ms: int
    log_start_offset: Offset
    duplicate: bool


class PartitionLog(ShapedLog):
    """See the module's text for the offsets and the threads."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        config: LogConfig,
        clock: Clock,
        *,
        recovery_point: int | None = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        topic_id: TopicId | None = None,
        lower_checkpoints: Callable[[], None] | None = None,
    ) -> "PartitionLog":
        """The log in `directory`; a new one if it is not there (nothing is created until the
        first append).

        `clean`: it was closed properly, so what is past `recovery_point` need not be checked.
        Without a recovery point (nobody knows it any more) all is checked, and a hole between
        segments, which compaction may have left, does not end the log.
        `lower_checkpoints` is called when a truncation goes below recovery point or log start,
        and must bring the new ones to disk.
        """
        log = cls(files, directory, config, clock, log_start_offset)
        log.topic_id = topic_id
        log._lower_checkpoints = lower_checkpoints
        try:
            if files.exists(directory):
                log._load(recovery_point, clean)
        except OSError as error:
            raise StorageError(f"cannot open the log in {directory}: {error}") from error
        return log

    def _load(self, recovery_point: int | None, clean: bool) -> None:
        self._created = True
        # After a crash nobody knows which names reached the disk, nor if the id did.
        self._unsynced_names = self._unsynced_directory = True
        opened = recovery.open_segments(
            self.files, self.directory, self.config, recovery_point=recovery_point, clean=clean
        )
        if not opened.segments:
            return
        self._segments = LogSegments(self.files, self.directory, opened.segments)
        active = self._segments.active
        # The first append was no later than the last, which is all that is known of the file.
        active.created_ms = min(self._clock.now_ms(), self.files.modified_ms(active.path()))
        self._roll_limit_ms = roll_limit_ms(self.config, active)
        self._unsynced_indexes = tuple(opened.reindexed)
        self._producer_state_manager.snapshots = tuple(opened.snapshots)
        self._producer_state_manager.states, self._epochs = opened.producers, opened.epochs
        first = opened.segments[0].base_offset
        start, end = max(self.log_start_offset, first), active.next_offset
        self.log_start_offset, self.log_end_offset = Offset(start), end
        self.recovery_point = Offset(max(first, min(recovery_point or 0, end)))
        self.flushed_offset = end if opened.intact else self.recovery_point
        self.checkpointed_offset = self.flushed_offset
        self._unsynced_names = self._unsynced_directory = not opened.intact
        if start > end:
            logger.warning(
                "the log ends below its start and begins anew there: directory=%s end=%d start=%d",
                self.directory,
                end,
                start,
            )
            self.truncate_fully_and_start_at(Offset(start))

    # Appending

    def append(
        self,
        batches: Sequence[tuple[int, BatchHeader]],
        buffer: memoryview,
        leader_epoch: LeaderEpoch,
    ) -> AppendInfo:
        """Give the checked batches in `buffer` their offsets (in place) and write them.

        A batch an idempotent producer has sent before is not written again; what is returned
        is the original one. Raises `ApiError` with Kafka's code if the producer may not send it.
        """
        with self._lock:
            producers = self._producer_state_manager.states
            epochs = self._epochs
            if producers is None or epochs is None or self._failure is not None:
                producers, epochs = self._ready_to_append()
            first = offset = self.log_end_offset
            if leader_epoch != epochs.latest:
                if leader_epoch < epochs.latest:
                    raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
                epochs.start_epoch(leader_epoch, first)
            placed: Placed = []
            for position, header in batches:
                if header.producer_id >= 0:
                    duplicate = producers.check(header)
                    if duplicate is not None:
                        return self._duplicate_info(duplicate)
                assign_offsets(buffer, position, offset, leader_epoch)
                last = offset + header.last_offset_delta
                placed.append((position, header, last))
                offset = Offset(last + 1)
            self._write(placed, buffer, producers)
            header = placed[0][1]
            time_ms = header.max_timestamp if header.uses_append_time else -1
            return AppendInfo(first, Offset(offset - 1), time_ms, self.log_start_offset, False)

    def find_duplicate(self, header: BatchHeader) -> AppendInfo | None:
        """Where the batch is that a producer sends again; None if it is not known."""
        with self._lock:
            self._raise_if_failed()
            batch = self._load_producers().find_duplicate(header)
        return None if batch is None else self._duplicate_info(batch)

    def _ready_to_append(self) -> tuple[ProducerStates, LeaderEpochCache]:
        self._raise_if_failed()
        return self._load_producers(), self._load_epochs()

    def _duplicate_info(self, batch: BatchMetadata) -> AppendInfo:
        # The batch's own time whoever set it, as Kafka responds.
        first, last = Offset(batch.first_offset), Offset(batch.last_offset)
        return AppendInfo(first, last, batch.timestamp, self.log_start_offset, True)

    def append_as_follower(self, buffer: memoryview) -> None:
        """Write batches fetched from the leader, which has given them offsets and epochs."""
        with self._lock:
            producers, epochs = self._ready_to_append()
            placed: Placed = []
            expected = self.log_end_offset
            for position, header in iterate_headers(buffer):
                if header.base_offset < expected:
                    raise ApiError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"the leader sent offset {header.base_offset} where the log has {expected}",
                    )
                expected = Offset(header.last_offset + 1)
                placed.append((position, header, header.last_offset))
                if header.leader_epoch > epochs.latest:
                    epochs.start_epoch(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            if placed:
                self._write(placed, buffer, producers)

    def _write(self, placed: Placed, buffer: memoryview, producers: ProducerStates) -> None:
        """One write for all; one for each only where they do not fit one segment."""
        size = len(buffer)
        config = self.config
        last = placed[-1][2]
        if size > config.segment_bytes:
            self._write_apart(placed, buffer, producers)
            return
        segment = self._segments.active
        try:
            if segment.size == 0 or self._roll_due(segment, size, last, placed):
                segment = self._segment_to_write(segment, last)
            start = segment.file.append((buffer,))
        except OSError as error:
            raise self._write_failed(segment, error) from error
        interval = config.index_interval_bytes
        for position, header, last_offset in placed:
            segment.add_batch(
                start + position,
                header.batch_length + LENGTH_OVERHEAD,
                last_offset,
                header.max_timestamp,
                interval,
            )
            if header.producer_id >= 0:
                producers.update(header, last_offset)
        self.bytes_since_checkpoint += size
        self.log_end_offset = Offset(last + 1)

    def _roll_due(self, segment: Segment, size: int, last: int, placed: Placed) -> bool:
        newest = placed[0][1].max_timestamp
        if len(placed) > 1:
            newest = max(header.max_timestamp for _, header, _ in placed)
        return roll_due(segment, size, last, newest, self._clock, self.config, self._roll_limit_ms)

    def _write_apart(self, placed: Placed, buffer: memoryview, producers: ProducerStates) -> None:
        if len(placed) == 1:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(buffer)} bytes do not fit a segment of {self.config.segment_bytes}",
            )
        for position, header, last in placed:
            self._write([(0, header, last)], buffer[position : position + header.size], producers)

    def _segment_to_write(self, segment: Segment, last_offset: int) -> Segment:
        """Make sure there are files to write to: the first of this log, or a new segment's."""
        if not self._created:
            self.files.make_directory(self.directory)
            if self.topic_id is not None:
                partition_metadata.store(self.files, self.directory, self.topic_id)
            self._created = self._unsynced_directory = True
        if segment.size == 0 and last_offset - segment.base_offset < 2**31:
            if not segment.data.exists:
                # First, since the name may be there whatever comes of the rest.
                self._unsynced_names = True
                segment.create_file(self._reserve_bytes)
            segment.created_ms = self._clock.now_ms()
            return segment
        return self._roll()

    def _write_failed(self, segment: Segment, error: OSError) -> StorageError:
        """A failed write leaves the file as it was; if it does not, the log is done for."""
        if isinstance(error, NotTried):
            return StorageUnavailable(f"cannot write to {segment.path()} now: {error}")
        failure = StorageError(f"cannot write to {segment.path()}: {error}")
        try:
            if segment.data.exists and segment.file.size() != segment.size:
                self._failure = failure
        except OSError:
            self._failure = failure
        return failure

    # Reading

    def read(
        self, start: Offset, max_bytes: int, end: Offset, *, at_least_one: bool = True
    ) -> bytes:
        """Whole batches from the one that holds `start`, all below `end`.

        Empty if there is nothing yet, or, without `at_least_one`, if the first batch is larger
        than `max_bytes`.
        """
        found, _ = self.find(start, max_bytes, end, at_least_one=at_least_one)
        if found is None:
            return b""
        try:
            return found.read()
        except OSError as error:
            raise StorageError(f"cannot read {found.file.path}: {error}") from error

    def find(self, start: Offset, max_bytes: int, end: Offset, *, at_least_one: bool) -> LogSlice:
        """Where the bytes are that `read` would give, and the offset behind the last batch."""
        self._require_in_range(start)
        if start >= end or start == self.log_end_offset:
            return EMPTY_SLICE
        segments = self._segments
        segment = segments.active
        try:
            if start >= segment.base_offset:
                return segment.find(start, max_bytes, end, at_least_one=at_least_one) or EMPTY_SLICE
            for segment in segments.at_or_after(start):
                if segment.base_offset > start and start < self.log_start_offset:
                    break  # deleted since we looked
                found = segment.find(start, max_bytes, end, at_least_one=at_least_one)
                if found is not None:
                    return found
        except OSError as error:
            raise StorageError(f"cannot read {segment.path()}: {error}") from error
        self._require_in_range(start)
        return EMPTY_SLICE

    def _require_in_range(self, offset: Offset) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}]"
            )

    def find_by_timestamp(self, timestamp: int, end: Offset) -> TimestampedOffset | None:
        """The first record below `end` whose timestamp is `timestamp` or later."""
        try:
            return first_at_or_after(
                self._segments.all, timestamp, self.log_start_offset, end, self._lock
            )
        except OSError as error:
            raise StorageError(f"cannot search {self.directory}: {error}") from error

    def max_timestamp(self, end: Offset) -> TimestampedOffset | None:
        """The first record with the highest timestamp, if it lies below `end`."""
        try:
            return latest_timestamp(self._segments.all, self.log_start_offset, end, self._lock)
        except OSError as error:
            raise StorageError(f"cannot search {self.directory}: {error}") from error
