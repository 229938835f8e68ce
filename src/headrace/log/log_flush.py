"""What of a log is on disk, and how the rest gets there: a flush in three phases.

    begin   what is to be synced is listed: files and directories, and up to which offset
    sync    they are synced, in any thread; nothing else of the log is looked at or changed
    end     what that amounts to; a truncation meanwhile may have put other batches where the
            synced ones were, so it counts for nothing then

A sync that fails is final: the kernel has dropped the pages and would call the next sync a
success, so the log refuses everything but reads until it is opened again. A sync that could not
be tried, for want of a descriptor, has dropped nothing: it is put off, and the log stays as it is.
"""

from collections.abc import Callable, Sequence

from headrace.core.errors import StorageError, StorageUnavailable
from headrace.core.files import FileSystem, NotTried
from headrace.core.ids import Offset, TopicId
from headrace.core.runtime import Clock
from headrace.log import partition_metadata
from headrace.log.config import LogConfig
from headrace.log.flush_job import FlushJob, SyncGuard
from headrace.log.segment import Segment
from headrace.log.segments import LogSegments


class LogFlush:
    """How far a log is on disk, and why it may take no more.

    For those who hold the log's lock. Invariant: recovery point <= checkpointed offset <= flushed
    offset.
    """

    __slots__ = (
        "_checkpoints_too_high",
        "_clock",
        "_directory",
        "_files",
        "_guard",
        "_lower_checkpoints",
        "_names",
        "_synced_names",
        "bytes_since_checkpoint",
        "checkpointed_offset",
        "failure",
        "flushed_at_ms",
        "flushed_offset",
        "half_emptied",
        "is_new",
        "recovery_point",
        "truncations",
        "unsynced_indexes",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        clock: Clock,
        start: Offset,
        lower_checkpoints: Callable[[], None] | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._guard = SyncGuard()
        self._lower_checkpoints = lower_checkpoints
        self._checkpoints_too_high = False
        self.flushed_offset = start
        self.flushed_at_ms = clock.monotonic_ms()
        # What recovery may start from, and what of that is known to be written down on disk.
        self.checkpointed_offset = start
        self.recovery_point = start
        self.bytes_since_checkpoint = 0
        self.truncations = 0
        # Rolled segments whose indexes are not yet on disk.
        self.unsynced_indexes: tuple[Segment, ...] = ()
        # How often names of files in the directory have changed, and how many of those changes
        # a power cut cannot take back; and whether it may take the directory itself.
        self._names = self._synced_names = 0
        self.is_new = False
        # Why the log takes no more appends; None while it does.
        self.failure: StorageError | None = None
        # Why the log could not be emptied, where no sync has failed: that may be tried again.
        self.half_emptied: StorageError | None = None

    def directory_created(self) -> None:
        """By the first append; a power cut may take it."""
        self.is_new = True

    def directory_found(self) -> None:
        """After a crash nobody knows which names reached the disk, nor if the topic id did."""
        self.is_new = True
        self.names_changed()

    def opened(
        self,
        start: Offset,
        end: Offset,
        recovery_point: int,
        unsynced_indexes: Sequence[Segment],
        *,
        intact: bool,
    ) -> None:
        """There is data from `start` to `end`; if it is `intact`, all of it stays there."""
        self.unsynced_indexes = tuple(unsynced_indexes)
        self.recovery_point = Offset(max(start, min(recovery_point, end)))
        self.flushed_offset = end if intact else self.recovery_point
        self.checkpointed_offset = self.flushed_offset
        if intact:
            self.is_new = False
            self._synced_names = self._names

    # Names

    def names_changed(self) -> None:
        """A file of the directory was created or renamed: the next flush syncs that."""
        self._names += 1

    @property
    def names_unsynced(self) -> bool:
        return self._names != self._synced_names

    # Flushing

    def is_due(self, end: Offset, config: LogConfig, now_ms: float) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush.

        `now_ms` is of the monotonic clock, as everywhere where a period is measured that does not
        outlive the process: a clock that is set back by hours must not put it off for so long.
        """
        unflushed = end - self.flushed_offset
        return unflushed > 0 and (
            unflushed >= config.flush_messages or now_ms - self.flushed_at_ms >= config.flush_ms
        )

    def begin(self, segments: LogSegments, end: Offset, topic_id: TopicId | None) -> FlushJob:
        self.raise_if_failed()
        if self.is_new:
            self._write_topic_id(topic_id)
        active = segments.active
        # Readers will soon ask for everything up to here and no further.
        active.read_positions.cache(end, active.size)
        try:
            data = [(each, each.file) for each in segments.reaching_past(self.flushed_offset)]
        except OSError as error:
            raise self.sync_error(error) from error
        return FlushJob(
            self._files,
            self._directory,
            self._guard,
            data,
            offset=end,
            names=self._names if self.names_unsynced else None,
            is_new=self.is_new,
            has_topic_id=topic_id is not None,
            truncations=self.truncations,
            began_ms=self._clock.monotonic_ms(),
        )

    def _write_topic_id(self, topic_id: TopicId | None) -> None:
        """Before the first flush of a log: its topic id must be in its directory.

        Without the topic id in it, data of a deleted topic could be taken for that of a new one
        of the same name; a crash right after the directory was made may have left it without.
        No sync is tried here, so whatever fails may be tried again.
        """
        if topic_id is None:
            return
        try:
            if partition_metadata.load(self._files, self._directory) is None:
                partition_metadata.store(self._files, self._directory, topic_id)
        except NotTried as error:
            raise self.sync_error(error) from error
        except OSError as error:
            raise StorageError(f"cannot write in {self._directory}: {error}") from error

    def end(self, job: FlushJob, error: OSError | None, segments: LogSegments) -> Offset:
        """What `job` has brought to disk counts from now on; returns the offset it reaches to.

        `error` is what its `sync` has raised.
        """
        if job.failed or error is not None:
            errors = [failure for segment, failure in job.failed if segment in segments.all]
            if error is not None:
                errors.append(error)
            if errors:
                # One that is final counts more than one that was put off.
                errors.sort(key=lambda each: isinstance(each, NotTried))
                raise self.sync_error(errors[0]) from errors[0]
        if job.names is not None:
            self._synced_names = max(self._synced_names, job.names)
        if job.is_new:
            self.is_new = False
        if job.truncations == self.truncations and job.offset > self.flushed_offset:
            self.flushed_offset = job.offset
            self.flushed_at_ms = job.began_ms
        return self.flushed_offset

    # Indexes

    def segment_closed(self, segment: Segment) -> None:
        """Another one is written to; the next checkpoint syncs its indexes."""
        self.unsynced_indexes = (*self.unsynced_indexes, segment)

    def take_unsynced_indexes(self) -> tuple[Segment, ...]:
        """Segments whose indexes the caller is about to sync."""
        taken, self.unsynced_indexes = self.unsynced_indexes, ()
        return taken

    def put_back_indexes(self, segments: tuple[Segment, ...]) -> None:
        """They could not be synced."""
        self.unsynced_indexes = (*segments, *self.unsynced_indexes)

    # Failures

    def fail(self, failure: StorageError) -> None:
        """The log takes no more, and says why."""
        self.failure = failure

    def raise_if_failed(self) -> None:
        """A deleted partition's path may already be that of its successor."""
        if self.failure is not None:
            raise StorageError(str(self.failure))

    def sync_error(self, error: OSError) -> StorageError:
        """What to raise for a failed sync; it is final unless nothing was tried."""
        if isinstance(error, NotTried):
            return StorageUnavailable(f"cannot sync {self._directory} now: {error}")
        self.failure = StorageError(f"cannot sync {self._directory}: {error}")
        return self.failure

    def begin_emptying(self) -> None:
        self.half_emptied = None

    def note_half_emptied(self, failure: StorageError) -> None:
        """No sync has failed, so it may be tried again."""
        self.half_emptied = failure

    def emptied(self, before: StorageError | None) -> None:
        """It takes appends again, unless something else than `before` has failed meanwhile."""
        if self.failure is before:
            self.failure = None

    @property
    def is_half_emptied(self) -> bool:
        """Emptying the log has failed half way: it takes nothing until that is done again."""
        return self.half_emptied is not None and self.half_emptied is self.failure

    # Checkpoints

    def checkpointed(self, end: Offset, size: int, truncations: int) -> Offset:
        """Everything up to `end` was flushed and indexed, unless it was truncated meanwhile."""
        if truncations == self.truncations:
            # No further than the indexes, though more may be flushed by now.
            self.checkpointed_offset = min(end, self.flushed_offset)
        self.bytes_since_checkpoint -= size
        return self.checkpointed_offset

    def checkpoint_stored(self, offset: Offset) -> None:
        """`offset` is on disk as the recovery point."""
        self.recovery_point = min(offset, self.checkpointed_offset)

    # Truncation

    def lower(self, offset: Offset, log_start: Offset) -> None:
        """Nothing from `offset` on counts as flushed any more, in memory."""
        self.truncations += 1
        self.flushed_offset = min(self.flushed_offset, offset)
        # The checkpointed one may be on its way to disk in another thread.
        if max(self.recovery_point, self.checkpointed_offset, log_start) > offset:
            self._checkpoints_too_high = True
        self.checkpointed_offset = min(self.checkpointed_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def cut(self, closed: Sequence[Segment]) -> None:
        """`closed` are those segments that are left, but for the last."""
        self.unsynced_indexes = tuple(s for s in self.unsynced_indexes if s in closed)

    def begun_anew(self, offset: Offset) -> None:
        """There is nothing before `offset`, nor behind it."""
        self.unsynced_indexes = ()
        self.flushed_offset = self.checkpointed_offset = offset

    def deleted_before(self, offset: Offset) -> None:
        """There is nothing before `offset` that could have to be flushed."""
        self.flushed_offset = max(self.flushed_offset, offset)

    def lower_checkpoints(self) -> None:
        """And on disk, before anything changes in the files; not while the log's lock is held.

        Otherwise a crash would leave a recovery point above new, unsynced batches, and recovery
        would believe them without looking; or a log start above new records, and hide them.
        """
        if self._checkpoints_too_high and self._lower_checkpoints is not None:
            self._lower_checkpoints()
        self._checkpoints_too_high = False
