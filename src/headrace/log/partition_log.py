"""One partition on disk: append and read here, everything else by those who own it.

    segments ......... the files, oldest first                      LogSegments
    epochs ........... where each leader epoch began                LeaderEpochCache
    producer_state ... what idempotent producers sent last          ProducerStateManager
    flush_state ...... what is on disk, and failures                LogFlush

    log start ............... deleted before it
    recovery point .......... flushed, and checkpointed as such
    flushed offset .......... on disk for certain
    log end ................. the next offset to be given

Appends, reads and changes of config come from one thread (the event loop), and so do the first and
the last phase of a flush; its syncs run in a worker. Whatever else waits for the disk may run in a
worker meanwhile, beside them and beside each other: `flush` as a whole, `checkpoint`,
`truncate_to`, `truncate_fully_and_start_at`, `apply_retention`, `expire_producers`,
`replace_segments`, `remove_deleted`, and the searches by time. Appends wait for a worker only while
it changes the segments or reads an index of the newest segment (`lock`), never for a sync; reads
take no lock at all. While a log is truncated nobody may append to it.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from headrace.log import (
    compaction_source,
    log_checkpoint,
    log_opening,
    recovery,
    replacement,
    retention,
    timestamps,
    truncation,
)
from headrace.log.compaction.plan import SegmentFacts
from headrace.log.config import LogConfig
from headrace.log.flush_job import FlushJob
from headrace.log.leader_epoch_cache import LeaderEpochCache
from headrace.log.leader_epochs import EpochEntry, LeaderEpochs
from headrace.log.log_flush import LogFlush
from headrace.log.log_writer import Placed, roll, roll_if_due, write
from headrace.log.producer_state import BatchMetadata, ProducerStates
from headrace.log.producer_state_manager import ProducerStateManager
from headrace.log.rolling import roll_limit_ms
from headrace.log.segment import EMPTY_SLICE, LogSlice, Segment
from headrace.log.segments import LogSegments
from headrace.protocol.records.header import BatchHeader, iterate_headers
from headrace.protocol.records.patch import assign_offsets


class AppendInfo(NamedTuple):
    """Where a produced batch lies, for the response to its producer."""

    first_offset: Offset
    last_offset: Offset
    append_time_ms: int
    log_start_offset: Offset
    duplicate: bool


class PartitionLog:
    """See the module's text for the offsets and the threads."""

    __slots__ = (
        "clock",
        "config",
        "directory",
        "epochs",
        "files",
        "flush_state",
        "is_created",
        "lock",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "roll_limit_ms",
        "segments",
        "structure_lock",
        "topic_id",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        config: LogConfig,
        clock: Clock,
        start: int,
        topic_id: TopicId | None,
        lower_checkpoints: Callable[[], None] | None,
        segments: Sequence[Segment],
    ) -> None:
        """`segments` are those on disk; without any the log is empty and begins at `start`."""
        self.files = files
        self.directory = directory
        self.config = config
        self.clock = clock
        self.topic_id = topic_id
        self.log_start_offset = Offset(start)
        self.log_end_offset = Offset(start)
        segments = segments or (Segment(files, directory, start, clock.now_ms()),)
        self.segments = LogSegments(files, directory, segments)
        self.epochs = LeaderEpochCache(files, directory)
        self.producer_state = ProducerStateManager(files, directory)
        self.flush_state = LogFlush(files, directory, clock, Offset(start), lower_checkpoints)
        self.roll_limit_ms = roll_limit_ms(config, self.segments.active)
        # Whether the directory is there.
        self.is_created = False
        # See `LogParts`.
        self.lock = threading.Lock()
        self.structure_lock = threading.Lock()

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
        start = log_start_offset
        try:
            if not files.exists(directory):
                return cls(files, directory, config, clock, start, topic_id, lower_checkpoints, ())
            opened = recovery.open_segments(
                files, directory, config, recovery_point=recovery_point, clean=clean
            )
            log = cls(
                files, directory, config, clock, start, topic_id, lower_checkpoints, opened.segments
            )
            log_opening.restore(log, opened, recovery_point or 0)
        except OSError as error:
            raise StorageError(f"cannot open the log in {directory}: {error}") from error
        return log

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def update_config(self, config: LogConfig) -> None:
        """Takes effect at once, for the active segment too."""
        with self.lock:
            self.config = config
            self.roll_limit_ms = roll_limit_ms(config, self.segments.active)

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
        with self.lock:
            producers, epochs = self.producer_state.states, self.epochs.table
            if producers is None or epochs is None or self.flush_state.failure is not None:
                producers, epochs = self._ready_to_append()
            first = self.log_end_offset
            offset: int = first
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
                offset = last + 1
            write(self, placed, buffer, producers)
            header = placed[0][1]
            time_ms = header.max_timestamp if header.uses_append_time else -1
            return AppendInfo(first, Offset(offset - 1), time_ms, self.log_start_offset, False)

    def find_duplicate(self, header: BatchHeader) -> AppendInfo | None:
        """Where the batch is that a producer sends again; None if it is not known."""
        with self.lock:
            self.flush_state.raise_if_failed()
            batch = self.load_producers().find_duplicate(header)
        return None if batch is None else self._duplicate_info(batch)

    def _ready_to_append(self) -> tuple[ProducerStates, LeaderEpochs]:
        self.flush_state.raise_if_failed()
        return self.load_producers(), self.load_epochs()

    def _duplicate_info(self, batch: BatchMetadata) -> AppendInfo:
        # The batch's own time whoever set it, as Kafka responds.
        first, last = Offset(batch.first_offset), Offset(batch.last_offset)
        return AppendInfo(first, last, batch.timestamp, self.log_start_offset, True)

    def append_as_follower(self, buffer: memoryview) -> None:
        """Write batches fetched from the leader, which has given them offsets and epochs."""
        with self.lock:
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
                write(self, placed, buffer, producers)

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
        segments = self.segments
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

    # Epochs and producers, read from disk when first needed

    def load_epochs(self) -> LeaderEpochs:
        table = self.epochs.table
        if table is None:
            with self._loading():
                start, end = self.log_start_offset, self.log_end_offset
                table = self.epochs.load(self.segments.all, start, end)
        return table

    def load_producers(self) -> ProducerStates:
        states = self.producer_state.states
        if states is None:
            with self._loading():
                states = self.producer_state.load(self.segments.all, self.log_end_offset)
        return states

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """Whoever asks for one of many partitions must be able to say of this one what is wrong;
        nothing has changed, and the next call tries anew."""
        try:
            yield
        except NotTried as error:
            raise StorageUnavailable(f"cannot read {self.directory} now: {error}") from error
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error

    def start_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader begins to write at the log's end."""
        with self.lock:
            epochs = self.load_epochs()
            if epoch > epochs.latest:
                epochs.start_epoch(epoch, self.log_end_offset)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self.load_epochs().latest

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch in which `offset` was written; -1 if it is not known."""
        return self.load_epochs().epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEntry:
        """The largest epoch not above `epoch` and where it ended; (-1, -1) if unknown."""
        return self.load_epochs().end_offset_for(epoch, self.log_end_offset)

    @property
    def producers(self) -> ProducerStates:
        """For DescribeProducers."""
        return self.load_producers()

    def expire_producers(self, now_ms: float) -> int:
        """Forget producers that sent nothing for `producer.id.expiration.ms`, by the monotonic
        clock: were the other one set forward, all would be forgotten at once."""
        with self.lock:
            states = self.producer_state.states
            # Not loaded means not written to since the start: loading will drop the old ones.
            if states is None:
                return 0
            return states.expire(now_ms, self.config.producer_id_expiration_ms)

    # To disk

    @property
    def flushed_offset(self) -> Offset:
        return self.flush_state.flushed_offset

    @property
    def failure(self) -> StorageError | None:
        """Why the log takes no more appends; None while it does."""
        return self.flush_state.failure

    def begin_flush(self) -> FlushJob:
        """What brings everything appended so far to disk; `sync` it in a worker."""
        with self.lock:
            return self.flush_state.begin(self.segments, self.log_end_offset, self.topic_id)

    def end_flush(self, job: FlushJob, error: OSError | None) -> Offset:
        """`job.sync` has returned, or raised `error`; return the offset that is flushed now."""
        with self.lock:
            return self.flush_state.end(job, error, self.segments)

    def flush(self) -> Offset:
        """All phases at once, for callers that may wait for the disk."""
        job = self.begin_flush()
        try:
            job.sync()
        except OSError as error:
            return self.end_flush(job, error)
        return self.end_flush(job, None)

    def flush_due(self, now_ms: float) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush, whoever waits for one."""
        return self.flush_state.is_due(self.log_end_offset, self.config, now_ms)

    @property
    def log_start_needs_checkpoint(self) -> bool:
        return log_checkpoint.log_start_needs_checkpoint(self)

    @property
    def recovery_point(self) -> Offset:
        return self.flush_state.recovery_point

    def refuse_writes(self) -> None:
        """The partition is deleted: nothing may be written any more."""
        with self.lock:
            self.flush_state.fail(StorageError(f"{self.directory} is deleted"))

    def advance_log_start(self, offset: Offset) -> None:
        """Records below `offset` are deleted: not to be read from now on."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is past the log end {self.log_end_offset}")
        with self.lock:
            if offset > self.log_start_offset:
                self.log_start_offset = offset
                self.load_epochs().truncate_start(offset)

    # What has a module of its own, which says what it does and which thread may run it

    roll = roll
    roll_if_due = roll_if_due
    checkpoint = log_checkpoint.checkpoint
    close = log_checkpoint.close
    apply_retention = retention.apply_retention
    remove_deleted = retention.remove_deleted
    truncate_to = truncation.truncate_to
    truncate_fully_and_start_at = truncation.truncate_fully_and_start_at
    find_by_timestamp = timestamps.find_by_timestamp
    max_timestamp = timestamps.max_timestamp
    compactable_offset = compaction_source.compactable_offset
    active_producers = compaction_source.active_producers
    replace_segments = replacement.replace_segments
    finish_replacement = replacement.finish_replacement

    @property
    def checkpoint_due(self) -> bool:
        return log_checkpoint.is_due(self)

    @property
    def segment_facts(self) -> tuple[SegmentFacts, ...]:
        return compaction_source.segment_facts(self)

    @property
    def is_half_replaced(self) -> bool:
        return replacement.is_half_replaced(self)

    @property
    def is_half_emptied(self) -> bool:
        return self.flush_state.is_half_emptied
