"""The middle layer of a partition's log: its segments come and go at both ends.

    roll            the newest segment is full: a new one begins at the log's end
    retention       the oldest segments go, and the log start with them
    delete-records  the log start moves; segments follow when they are wholly below it
    truncation      the newest records go (a follower that must follow another leader)

Files are renamed first and removed some time later, so that a reader in the middle of one can
finish.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ENOSPC
from itertools import pairwise, takewhile

from headrace.core.errors import OffsetOutOfRange, StorageError, StorageUnavailable
from headrace.core.files import NotTried
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.compaction.cleaned import remove_cleaned
from headrace.log.compaction.plan import SegmentFacts
from headrace.log.compaction.request import Replacement
from headrace.log.compaction.swap import commit_swap, finish_swap, undo_swap
from headrace.log.config import LogConfig
from headrace.log.durable_log import DurableLog, HalfReplaced
from headrace.log.leader_epoch_cache import EpochEntry, LeaderEpochCache
from headrace.log.names import DELETED, LOG, offset_name
from headrace.log.producer_state import ProducerStates
from headrace.log.recovery import add_epochs
from headrace.log.retention import expired_segments
from headrace.log.rolling import clock_due, roll_limit_ms
from headrace.log.segment import Segment

logger = logging.getLogger(__name__)


class ShapedLog(DurableLog):
    """A log that can grow and shrink."""

    __slots__ = ()

    def update_config(self, config: LogConfig) -> None:
        """Takes effect at once, for the active segment too."""
        with self._lock:
            self.config = config
            self._roll_limit_ms = roll_limit_ms(config, self._segments.active)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is the active one."""
        return self._segments.all

    # Rolling

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll a segment that has data and spans its time by the clock, written to or not."""
        with self._lock:
            active = self._segments.active
            due = active.size > 0 and clock_due(active, now_ms, self._roll_limit_ms)
            if due and self._failure is None:
                self._roll()
        return due

    def roll(self) -> None:
        """Begin a new segment, so that all there is so far can be deleted as a whole."""
        with self._lock:
            self._raise_if_failed()
            if self._segments.active.size > 0:
                try:
                    self._roll()
                except OSError as error:
                    raise StorageError(f"cannot roll {self.directory}: {error}") from error

    def _roll(self) -> Segment:
        """Begin a new segment at the log's end; its name is synced by the next flush."""
        old, base_offset = self._segments.active, self.log_end_offset
        self._unsynced_names = True
        try:
            segment = self._segments.roll(base_offset, self._clock.now_ms(), self._reserve_bytes)
        except OSError as error:
            if self.files.exists(f"{self.directory}/{offset_name(base_offset, LOG)}"):
                # At a restart that name would end the old segment, whatever is in it by then.
                self._failure = StorageError(f"cannot roll {self.directory}: {error}")
            raise
        old.closed_ms = segment.created_ms
        self._roll_limit_ms = roll_limit_ms(self.config, segment)
        self._unsynced_indexes = (*self._unsynced_indexes, old)
        if self.config.preallocate:
            old.data.release_space()
        # A later truncation goes back to this state instead of the log's beginning.
        self._producer_state_manager.take_snapshot(self.log_end_offset)
        return segment

    # The old end

    def advance_log_start(self, offset: Offset) -> None:
        """Records below `offset` are deleted: not to be read from now on."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is past the log end {self.log_end_offset}")
        with self._lock:
            if offset > self.log_start_offset:
                self.log_start_offset = offset
                self._load_epochs().truncate_start(offset)

    def apply_retention(self, now_ms: int, high_watermark: Offset) -> list[tuple[str, str]]:
        """Delete what may go; return path and reason of each segment deleted."""
        with self._structure_lock:
            self._finish_replacement()
            try:
                with self._lock:
                    # Here, since it may have to make anew an index that appends add to.
                    _ = self._segments.active.indexes.max_timestamp
                    segments = self._segments.all
                    ends = {segment: segment.next_offset for segment in segments}
                expired = expired_segments(
                    segments,
                    self.config,
                    now_ms=now_ms,
                    log_start=self.log_start_offset,
                    high_watermark=high_watermark,
                )
                deleted = self._delete_oldest([(segment, ends[segment]) for segment, _ in expired])
            except OSError as error:
                raise StorageError(f"cannot delete from {self.directory}: {error}") from error
        return [(segment.path(), reason) for segment, reason in expired[:deleted]]

    def _delete_oldest(self, expired: list[tuple[Segment, Offset]]) -> int:
        """Delete the segments that still end where they did when they were judged."""
        with self._lock:
            unchanged = takewhile(lambda judged: judged[0].next_offset == judged[1], expired)
            segments = [segment for segment, _ in unchanged]
            if not segments:
                return 0
            self._raise_if_failed()
            segments = self._prepare_deletion(segments)
        # Producers whose batches go now are known only from the snapshot, and the log's end
        # perhaps only from the name of a new, still empty segment: both must outlast the rest.
        self._producer_state_manager.sync_newest()
        self.files.sync_directory(self.directory)
        for segment in segments:
            with self._lock:
                self._raise_if_failed()
                # First, so that a reader who no longer finds a segment knows why.
                following = self._segments.all[1].base_offset
                self.log_start_offset = max(self.log_start_offset, following)
                self._segments.drop([segment], self._removal_due_ms())
            # One by one, since a directory promises no order: were an older segment to come back
            # without its successor, recovery would find a hole and end the log there.
            self.files.sync_directory(self.directory)
        with self._lock:
            self._producer_state_manager.delete_snapshots_before(following)
            self.flushed_offset = max(self.flushed_offset, following)
            self._load_epochs().truncate_start(self.log_start_offset)
        return len(segments)

    def _removal_due_ms(self) -> float:
        """When files that are renamed now may go, by the monotonic clock."""
        return self._clock.monotonic_ms() + self.config.file_delete_delay_ms

    def _prepare_deletion(self, segments: list[Segment]) -> list[Segment]:
        """Make sure that what must outlast the oldest segments is written; those that may go now.

        A full disk may have no space for that, and must be able to get some: then those go first
        whose producers an earlier snapshot knows.
        """
        self._load_producers()
        try:
            if len(segments) == len(self._segments):
                self._roll()
            if not self._producer_state_manager.covers(
                self._segments.all[len(segments)].base_offset
            ):
                self._producer_state_manager.take_snapshot(self.log_end_offset)
            return segments
        except OSError as error:
            known = [
                segment
                for segment, following in pairwise(self._segments.all)
                if segment in segments
                and self._producer_state_manager.covers(following.base_offset)
            ]
            if error.errno != ENOSPC or not known:
                raise
            return known

    # The new end

    def truncate_to(self, offset: Offset) -> None:
        """Remove every batch that reaches `offset` or more.

        The log then ends behind the last batch that is left: at `offset`, if one ended there.
        """
        with self._structure_lock:
            self._finish_replacement()
            with self._lock:
                if offset >= self.log_end_offset:
                    return
                self._raise_if_failed()
                try:
                    if offset < self._segments.all[0].base_offset:
                        self._lower_flushed_offset(offset)
                        self._reset_to(offset)
                    else:
                        self._truncate_in_segment(offset)
                except OSError as error:
                    raise StorageError(f"cannot truncate {self.directory}: {error}") from error

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove everything; `offset` is given next."""
        with self._structure_lock:
            self._finish_replacement()
            with self._lock:
                if not self.is_half_emptied:
                    self._raise_if_failed()
                try:
                    self._lower_flushed_offset(min(offset, self.log_start_offset))
                    self._reset_to(offset)
                except OSError as error:
                    raise StorageError(f"cannot truncate {self.directory}: {error}") from error

    @property
    def is_half_emptied(self) -> bool:
        """Emptying the log has failed half way: it takes nothing until that is done again."""
        return self._half_emptied is not None and self._half_emptied is self._failure

    @contextmanager
    def _fail_log_on_error(self) -> Iterator[None]:
        """What begins here must succeed, or the log takes no more appends: it may still write to
        a file that is about to be removed."""
        try:
            yield
        except (OSError, StorageError) as error:
            half_emptied = self._half_emptied
            self._failure = half_emptied or StorageError(
                f"half truncated: {self.directory}: {error}"
            )
            raise

    @contextmanager
    def _note_half_emptied(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._half_emptied = StorageError(f"half emptied: {self.directory}: {error}")
            raise

    def _lower_flushed_offset(self, offset: Offset) -> None:
        """Nothing from `offset` on counts as flushed any more; on disk first, then in the file.

        Otherwise a crash would leave a recovery point above new, unsynced batches, and recovery
        would believe them without looking; or a log start above new records, and hide them.
        """
        self._truncations += 1
        self.flushed_offset = min(self.flushed_offset, offset)
        # The checkpointed one may be on its way to disk in another thread.
        highest = max(self.recovery_point, self.checkpointed_offset, self.log_start_offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.checkpointed_offset = min(self.checkpointed_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if highest > offset and self._lower_checkpoints is not None:
            self._lower_checkpoints()

    def _truncate_in_segment(self, offset: Offset) -> None:
        segments = self._segments
        number = segments.number_for(offset)
        if number and segments.all[number].base_offset == offset:
            number -= 1
        active = segments.all[number]
        position = active.locate(offset)
        position = active.size if position is None else position
        end = active.end_before(position)
        self._lower_flushed_offset(end)
        # Not synced: should the names come back, recovery finds that these segments do not
        # connect to the one that was cut, or are of an older epoch, and drops them again.
        due_ms = self._removal_due_ms()
        with self._fail_log_on_error():
            segments.drop(segments.all[number + 1 :], due_ms)
            self._unsynced_names = True
            active.truncate(position)
            # A flush looks only at segments with new batches; this one may never get any, and
            # what was cut would be back behind batches that are whole.
            active.file.sync()
            self._load_epochs().truncate_end(end)
            self._producer_state_manager.truncate(end)
        self._unsynced_indexes = tuple(s for s in self._unsynced_indexes if s in segments.all[:-1])
        self._roll_limit_ms = roll_limit_ms(self.config, active)
        self.log_end_offset = end

    def _reset_to(self, offset: Offset) -> None:
        now_ms = self._clock.now_ms()
        self.files.make_directory(self.directory)
        self._created = True
        with self._fail_log_on_error():
            self._half_emptied = None
            with self._note_half_emptied():
                active = self._segments.reset_to(offset, now_ms, self._removal_due_ms())
            # The new name alone says where the log now begins and ends.
            self.files.sync_directory(self.directory)
            with self._note_half_emptied():
                self._producer_state_manager.clear()
        self._failure = None
        self._unsynced_indexes = ()
        self._roll_limit_ms = roll_limit_ms(self.config, active)
        self._epochs = LeaderEpochCache()
        self._epochs.changed = True
        self.log_start_offset = self.log_end_offset = offset
        self.flushed_offset = self.checkpointed_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    # Compaction

    @property
    def segment_facts(self) -> tuple[SegmentFacts, ...]:
        """What a compaction plan wants to know, the active segment last."""
        facts: list[SegmentFacts] = []
        segments = self._segments.all
        closed_ms = -1
        for segment in segments:
            before_ms, closed_ms = closed_ms, self._closed_ms(segment, segment is segments[-1])
            facts.append(
                SegmentFacts(
                    segment.base_offset,
                    segment.next_offset,
                    segment.size,
                    _begun_ms(segment.created_ms, before_ms, closed_ms),
                    closed_ms,
                )
            )
        return tuple(facts)

    def _closed_ms(self, segment: Segment, is_active: bool) -> int:
        """When a segment was last appended to, by the clock; asked of the file once."""
        now_ms = self._clock.now_ms()
        if is_active:
            return now_ms
        if segment.closed_ms is None:
            # A copied or restored file may claim to be of tomorrow.
            segment.closed_ms = min(now_ms, self.files.modified_ms(segment.path()))
        return segment.closed_ms

    def compactable_offset(self, high_watermark: Offset) -> Offset:
        """Up to where compaction may go: recovery takes a hole past the recovery point for lost
        data."""
        return min(high_watermark, self.recovery_point)

    def active_producers(self) -> dict[int, int]:
        """The last offset each known producer wrote; compaction keeps that batch."""
        with self._lock:
            return {
                producer_id: producer.batches[-1].last_offset
                for producer_id, producer in self._load_producers()
                if producer.batches
            }

    def replace_segments(self, replacement: Replacement) -> bool:
        """Put a compacted segment in the place of those it was made from.

        False, and the `.cleaned` files removed, if one of them is gone or was cut meanwhile.
        """
        with self._structure_lock:
            self._finish_replacement()
            base, old_bases = replacement.base_offset, set(replacement.old_base_offsets)
            old = [s for s in self._segments.all[:-1] if s.base_offset in old_bases]
            ends = {s.next_offset for s in old}
            if (
                len(old) != len(old_bases)
                or replacement.next_offset not in ends
                or replacement.next_offset > self.recovery_point
                or self._failure is not None
            ):
                remove_cleaned(self.files, self.directory, base)
                return False
            try:
                commit_swap(self.files, self.directory, base)
            except OSError as error:
                with suppress(OSError):
                    undo_swap(self.files, self.directory, base)
                raise StorageError(f"cannot replace in {self.directory}: {error}") from error
            self._half_replaced = HalfReplaced(replacement, old)
            self._finish_replacement()
        return True

    @property
    def is_half_replaced(self) -> bool:
        """A replacement was committed and failed before its end: until it is finished the segments
        are not those on disk, and cannot be compacted."""
        return self._half_replaced is not None

    def finish_replacement(self) -> None:
        """Go on where a replacement has failed; there may be space or descriptors again.

        Whatever else changes the segments does so first: by their names on disk the old segments
        and the new one cannot be distinguished.
        """
        with self._structure_lock:
            self._finish_replacement()

    def _finish_replacement(self) -> None:
        half = self._half_replaced
        if half is None:
            return
        base = half.replacement.base_offset
        try:
            if half.renamed is None:
                half.renamed = self._rename_replaced(half.old)
            finish_swap(self.files, self.directory, base)
            replacement = Segment.existing(
                self.files, self.directory, base, half.replacement.next_offset
            )
            with self._lock:
                self._segments.replace(half.renamed, replacement, self._removal_due_ms())
        except OSError as error:
            raise StorageError(f"cannot replace in {self.directory}: {error}") from error
        self._half_replaced = None

    def _rename_replaced(self, old: Sequence[Segment]) -> list[tuple[Segment, list[str]]]:
        with self._lock:
            self._raise_if_failed()
            # What retention has dropped meanwhile is out of the way already.
            renamed = [(s, s.rename(DELETED)) for s in old if s in self._segments.all]
        try:
            # Were an old one to come back, it would overlap the new.
            self.files.sync_directory(self.directory)
        except NotTried:
            raise
        except OSError:
            # Nobody knows what is on disk, and a second sync would not say: the next start will
            # finish what is committed.
            self._half_replaced = None
            raise
        return renamed

    # Epochs and producers, read from disk when first needed

    def _load_epochs(self) -> LeaderEpochCache:
        if self._epochs is None:
            with self._storage_errors():
                self._epochs = self._read_epochs()
        return self._epochs

    def _read_epochs(self) -> LeaderEpochCache:
        epochs = LeaderEpochCache.load(self.files, self.directory)
        if epochs is None or epochs.latest < self._segments.active.last_epoch():
            logger.warning("rebuilding leader epochs: directory=%s", self.directory)
            epochs = LeaderEpochCache()
            add_epochs(epochs, self._segments.all, self.log_end_offset)
        epochs.truncate_end(self.log_end_offset)
        epochs.truncate_start(self.log_start_offset)
        return epochs

    def _load_producers(self) -> ProducerStates:
        states = self._producer_state_manager.states
        if states is None:
            with self._storage_errors():
                states = self._producer_state_manager.load(self._segments.all, self.log_end_offset)
        return states

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
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
        with self._lock:
            epochs = self._load_epochs()
            if epoch > epochs.latest:
                epochs.start_epoch(epoch, self.log_end_offset)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._load_epochs().latest

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch in which `offset` was written; -1 if it is not known."""
        return self._load_epochs().epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEntry:
        """The largest epoch not above `epoch` and where it ended; (-1, -1) if unknown."""
        return self._load_epochs().end_offset_for(epoch, self.log_end_offset)

    @property
    def producers(self) -> ProducerStates:
        """For DescribeProducers."""
        return self._load_producers()

    def expire_producers(self, now_ms: float) -> int:
        """Forget producers that sent nothing for `producer.id.expiration.ms`, by the monotonic
        clock: were the other one set forward, all would be forgotten at once."""
        with self._lock:
            states = self._producer_state_manager.states
            # Not loaded means not written to since the start: loading will drop the old ones.
            return (
                0
                if states is None
                else states.expire(now_ms, self.config.producer_id_expiration_ms)
            )


def _begun_ms(created_ms: int, before_ms: int, closed_ms: int) -> int:
    """When a segment got its first record, by the clock.

    Of a segment that an earlier process wrote nobody knows: not before the one before it was
    closed (unless that was rewritten since), not after it was closed itself.
    """
    if created_ms > 0:
        return created_ms
    return closed_ms if before_ms < 0 else min(before_ms, closed_ms)
