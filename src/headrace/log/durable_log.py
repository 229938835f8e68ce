"""The lowest layer of a partition's log: what it consists of, and what of it is on disk.

    flush         data files and names: what was appended before the call survives a power cut
    checkpoint    flush, and also what would otherwise have to be found out by reading
    close         a checkpoint after which nothing needs to be recovered

`_lock` guards the segments and the log end, never a sync: appends go on while a worker flushes.
`_structure_lock` keeps apart those who change the segments in several steps with syncs between.

A write that fails is taken back and may be tried again (a full disk gets space). A *sync* that
fails is final: the kernel has dropped the pages and would call the next sync a success, so the
log refuses everything but reads until it is opened again. A sync that could not be tried, for want
of a descriptor, has dropped nothing: it is put off, and the log stays as it is.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.core.errors import StorageError, StorageUnavailable
from headrace.core.files import FileSystem, NotTried
from headrace.core.ids import Offset, TopicId
from headrace.core.runtime import Clock
from headrace.log import partition_metadata
from headrace.log.compaction.request import Replacement
from headrace.log.config import LogConfig
from headrace.log.leader_epoch_cache import LeaderEpochCache
from headrace.log.producer_state_manager import ProducerStateManager
from headrace.log.rolling import roll_limit_ms
from headrace.log.segment import Segment
from headrace.log.segments import LogSegments


@dataclass(slots=True)
class HalfReplaced:
    """A replacement that is committed on disk and not yet in place, and what it replaces."""

    replacement: Replacement
    old: list[Segment]
    renamed: list[tuple[Segment, list[str]]] | None = None
    """Once all of `old` is out of the way: from then on its names may be those of the new one."""


class DurableLog:
    """Parts of a log, and how they get to disk."""

    __slots__ = (
        "_clock",
        "_created",
        "_epochs",
        "_failure",
        "_flush_lock",
        "_half_emptied",
        "_half_replaced",
        "_lock",
        "_lower_checkpoints",
        "_producer_state_manager",
        "_roll_limit_ms",
        "_segments",
        "_structure_lock",
        "_truncations",
        "_unsynced_directory",
        "_unsynced_indexes",
        "_unsynced_names",
        "bytes_since_checkpoint",
        "checkpointed_offset",
        "config",
        "directory",
        "files",
        "flushed_at_ms",
        "flushed_offset",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self, files: FileSystem, directory: str, config: LogConfig, clock: Clock, start: int
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.topic_id: TopicId | None = None
        self.log_start_offset = Offset(start)
        self.log_end_offset = Offset(start)
        self.flushed_offset = Offset(start)
        self.flushed_at_ms = clock.monotonic_ms()
        # What recovery may start from, and what of that is known to be written down on disk.
        self.checkpointed_offset = Offset(start)
        self.recovery_point = Offset(start)
        self.bytes_since_checkpoint = 0
        self._clock = clock
        self._segments = LogSegments(
            files, directory, (Segment(files, directory, start, clock.now_ms()),)
        )
        self._producer_state_manager = ProducerStateManager(files, directory)
        self._epochs: LeaderEpochCache | None = LeaderEpochCache()  # None: not yet loaded
        self._roll_limit_ms = roll_limit_ms(config, self._segments.active)
        self._created = False
        # Names of files in the directory, and of the directory itself, that a power cut may take.
        self._unsynced_names = False
        self._unsynced_directory = False
        # Rolled segments whose indexes are not yet on disk.
        self._unsynced_indexes: tuple[Segment, ...] = ()
        self._truncations = 0
        self._half_replaced: HalfReplaced | None = None
        # Why the log could not be emptied, where no sync has failed: that may be tried again.
        self._half_emptied: StorageError | None = None
        self._failure: StorageError | None = None
        self._lower_checkpoints: Callable[[], None] | None = None
        # Taken in the order structure, flush, lock.
        self._structure_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._lock = threading.Lock()

    @property
    def _reserve_bytes(self) -> int:
        return self.config.segment_bytes if self.config.preallocate else 0

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def failure(self) -> StorageError | None:
        """Why the log takes no more appends; None while it does."""
        return self._failure

    def _raise_if_failed(self) -> None:
        """Under `_lock`: a deleted partition's path may already be that of its successor."""
        if self._failure is not None:
            raise StorageError(str(self._failure))

    def flush(self) -> Offset:
        """Bring everything appended before the call to disk; return the offset it reaches to."""
        with self._flush_lock:
            with self._lock:
                self._raise_if_failed()
                end = self.log_end_offset
                truncations = self._truncations
                names, self._unsynced_names = self._unsynced_names, False
                directory, self._unsynced_directory = self._unsynced_directory, False
                active = self._segments.active
                # Readers will soon ask for everything up to here and no further.
                active.read_positions.cache(end, active.size)
                dirty = self._segments.reaching_past(self.flushed_offset)
                now_ms = self._clock.monotonic_ms()
            try:
                if directory:
                    self._write_topic_id()
                self._sync_all(dirty, names=names, directory=directory)
            except StorageError:
                with self._lock:
                    self._unsynced_names |= names
                    self._unsynced_directory |= directory
                raise
            with self._lock:
                # A truncation meanwhile may have put other batches where the synced ones were.
                if truncations == self._truncations and end > self.flushed_offset:
                    self.flushed_offset = end
                    self.flushed_at_ms = now_ms
                return self.flushed_offset

    def _sync_all(self, dirty: Iterable[Segment], *, names: bool, directory: bool) -> None:
        try:
            self._sync(dirty, lambda segment: segment.file.sync())
            if directory:
                self._sync_new_directory()
            if names:
                # A synced file whose name is lost is lost.
                self.files.sync_directory(self.directory)
        except NotTried as error:
            raise self._sync_unavailable(error) from error
        except OSError as error:
            raise self._sync_failed(error) from error

    def _sync(self, segments: Iterable[Segment], sync: Callable[[Segment], None]) -> None:
        for segment in segments:
            try:
                sync(segment)
            except OSError:
                # Deleted since: nobody waits for its bytes any more.
                if segment in self._segments.all:
                    raise

    def _write_topic_id(self) -> None:
        """Before the first flush of a log: its topic id must be in its directory.

        Without the topic id in it, data of a deleted topic could be taken for that of a new one
        of the same name; a crash right after the directory was made may have left it without.
        No sync is tried here, so whatever fails may be tried again.
        """
        if self.topic_id is None:
            return
        try:
            if partition_metadata.load(self.files, self.directory) is None:
                partition_metadata.store(self.files, self.directory, self.topic_id)
        except NotTried as error:
            raise self._sync_unavailable(error) from error
        except OSError as error:
            raise StorageError(f"cannot write in {self.directory}: {error}") from error

    def _sync_new_directory(self) -> None:
        """The first flush of a log: its directory's name and its topic id."""
        if self.topic_id is not None:
            partition_metadata.sync(self.files, self.directory)
        self.files.sync_directory(self.directory.rpartition("/")[0])

    def _sync_unavailable(self, error: NotTried) -> StorageUnavailable:
        return StorageUnavailable(f"cannot sync {self.directory} now: {error}")

    def _sync_failed(self, error: OSError) -> StorageError:
        failure = StorageError(f"cannot sync {self.directory}: {error}")
        with self._lock:
            self._failure = failure
        return failure

    @property
    def log_start_needs_checkpoint(self) -> bool:
        """Whether no file name on disk says where the log starts, so that a checkpoint must."""
        first = self._segments.all[0]
        return self.log_start_offset > first.base_offset or (
            self.log_start_offset > 0
            and (self._unsynced_names or self._unsynced_directory or not first.data.exists)
        )

    def flush_due(self, now_ms: float) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush, whoever waits for one.

        `now_ms` is of the monotonic clock, as everywhere where a period is measured that does not
        outlive the process: a clock that is set back by hours must not put it off for so long.
        """
        unflushed = self.log_end_offset - self.flushed_offset
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or now_ms - self.flushed_at_ms >= self.config.flush_ms
        )

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint would write anything."""
        epochs = self._epochs
        return self._created and (
            self.checkpointed_offset != self.log_end_offset
            or self.recovery_point != self.checkpointed_offset
            or bool(self._unsynced_indexes)
            or (epochs is not None and epochs.changed)
        )

    def checkpoint(self) -> Offset:
        """Flush, and leave little to recovery: it could start at the offset returned.

        That offset becomes the recovery point when the caller has brought it to disk.
        """
        if not self.checkpoint_due:
            return self.checkpointed_offset
        with self._structure_lock:
            with self._lock:
                self._raise_if_failed()
                rolled, self._unsynced_indexes = self._unsynced_indexes, ()
                end, size = self.log_end_offset, self.bytes_since_checkpoint
                try:
                    self._write_derived(rolled)
                except OSError as error:
                    self._unsynced_indexes = (*rolled, *self._unsynced_indexes)
                    raise StorageError(f"cannot checkpoint {self.directory}: {error}") from error
            try:
                # Recovery will not look at these segments again, so their indexes must be right.
                self._sync(rolled, lambda segment: segment.indexes.sync())
            except NotTried as error:
                with self._lock:
                    self._unsynced_indexes = (*rolled, *self._unsynced_indexes)
                raise self._sync_unavailable(error) from error
            except OSError as error:
                raise self._sync_failed(error) from error
        self.flush()
        with self._lock:
            # No further than the indexes, though more may be flushed by now.
            self.checkpointed_offset = min(end, self.flushed_offset)
            self.bytes_since_checkpoint -= size
        return self.checkpointed_offset

    def _write_derived(self, rolled: tuple[Segment, ...]) -> None:
        """Index entries, producer snapshot, epochs: unsynced, since all can be found anew."""
        for segment in rolled:
            if segment in self._segments.all:
                segment.indexes.persist(final=True)
        active = self._segments.active
        if active.data.exists:
            active.indexes.persist(final=False)
        if self._producer_state_manager.is_small:
            self._producer_state_manager.take_snapshot(self.log_end_offset)
            self._producer_state_manager.remove_stray_snapshots(self._segments.base_offsets)
        if self._epochs is not None and self._epochs.changed:
            self._epochs.store(self.files, self.directory)
            self._unsynced_names = True

    def remove_deleted(self, now_ms: float | None = None) -> int:
        """Remove the files of segments deleted long enough ago, by the monotonic clock (of all,
        without a time); return how many segments. What cannot be removed is tried again the next
        time."""
        with self._lock:
            pending = self._segments.take_due(now_ms)
        removed = 0
        try:
            # Outside the lock: appends need not wait until a large file is gone.
            for each in pending:
                each.remove()
                removed += 1
        finally:
            with self._lock:
                self._segments.put_back(pending[removed:])
        return removed

    def close(self) -> None:
        """Leave everything such that the next start has nothing to recover."""
        try:
            if self._created and self._failure is None:
                self.flush()
                self.checkpoint()
                self._producer_state_manager.take_snapshot(self.log_end_offset)
                active = self._segments.active
                if active.data.exists:
                    active.indexes.persist(final=True)
                    if len(active.indexes.offset_index):
                        # The next start will believe them; without entries it reads all anyway.
                        active.indexes.sync()
                    if self.config.preallocate:
                        active.data.release_space()
                self.remove_deleted()
        except OSError as error:
            raise StorageError(f"cannot close {self.directory}: {error}") from error
        finally:
            self._segments.close()
        if self._failure is not None:
            raise StorageError(str(self._failure))

    def refuse_writes(self) -> None:
        """The partition is deleted: nothing may be written any more."""
        with self._lock:
            self._failure = StorageError(f"{self.directory} is deleted")
