"""Cut the new end of a log (a follower that must follow another leader), or begin it anew.

    in memory    nothing from there on counts as flushed or checkpointed   under the lock
    on disk      recovery point and log start are lowered in their tables  syncs
    the cut      files, indexes, epochs, producers, the log end            under the lock
    on disk      what was cut stays cut                                    sync

May run in a worker, beside reads and flushes: the log's lock is never held across a sync, so
whoever needs it on the event loop waits for a few system calls at most. Who calls sees to it that
nobody appends meanwhile: a follower that truncates has no answer of its leader to write.

Nothing is promised before the call returns. A crash before that may bring back any part of what
was cut; recovery then reads it all, since the lowered recovery point was on disk first.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.core.errors import StorageError
from headrace.core.ids import Offset
from headrace.log.log_parts import LogParts, removal_due_ms
from headrace.log.replacement import finish_half_replaced
from headrace.log.rolling import roll_limit_ms
from headrace.log.segments import LogSegments


def truncate_to(log: LogParts, offset: Offset) -> None:
    """Remove every batch that reaches `offset` or more.

    The log then ends behind the last batch that is left: at `offset`, if one ended there.
    """
    with log.structure_lock:
        finish_half_replaced(log)
        if offset >= log.log_end_offset:
            return
        try:
            if offset < log.segments.all[0].base_offset:
                with log.lock:
                    log.flush_state.raise_if_failed()
                _reset_to(log, offset, offset)
            else:
                _truncate_in_segment(log, offset)
        except OSError as error:
            raise StorageError(f"cannot truncate {log.directory}: {error}") from error


def truncate_fully_and_start_at(log: LogParts, offset: Offset) -> None:
    """Remove everything; `offset` is given next."""
    with log.structure_lock:
        finish_half_replaced(log)
        with log.lock:
            if not log.flush_state.is_half_emptied:
                log.flush_state.raise_if_failed()
        try:
            _reset_to(log, offset, min(offset, log.log_start_offset))
        except OSError as error:
            raise StorageError(f"cannot truncate {log.directory}: {error}") from error


def _lower(log: LogParts, offset: Offset) -> None:
    log.flush_state.lower(offset, log.log_start_offset)
    log.log_start_offset = min(log.log_start_offset, offset)


def _truncate_in_segment(log: LogParts, offset: Offset) -> None:
    flush = log.flush_state
    with log.lock:
        flush.raise_if_failed()
        number, position = _position_of(log.segments, offset)
        active = log.segments.all[number]
        end = active.end_before(position)
        _lower(log, end)
    flush.lower_checkpoints()
    # The names are not synced: should they come back, recovery finds that these segments do not
    # connect to the one that was cut, or are of an older epoch, and drops them again.
    with _fail_log_on_error(log):
        with log.lock:
            # Once more: a flush may have ended since.
            _lower(log, end)
            log.segments.drop(log.segments.all[number + 1 :], removal_due_ms(log))
            flush.names_changed()
            active.truncate(position)
            log.load_epochs().truncate_end(end)
            log.producer_state.truncate(end)
            flush.cut(log.segments.all[:-1])
            log.roll_limit_ms = roll_limit_ms(log.config, active)
            log.log_end_offset = end
        # A flush looks only at segments with new batches; this one may never get any, and what
        # was cut would be back behind batches that are whole.
        active.file.sync()


def _position_of(segments: LogSegments, offset: Offset) -> tuple[int, int]:
    """The number of the segment that will be the last one, and where it is cut."""
    number = segments.number_for(offset)
    if number and segments.all[number].base_offset == offset:
        number -= 1
    segment = segments.all[number]
    position = segment.locate(offset)
    return number, segment.size if position is None else position


def _reset_to(log: LogParts, offset: Offset, lowest: Offset) -> None:
    flush = log.flush_state
    before = flush.failure
    with log.lock:
        _lower(log, lowest)
    flush.lower_checkpoints()
    log.files.make_directory(log.directory)
    with _fail_log_on_error(log):
        flush.begin_emptying()
        with log.lock:
            log.is_created = True
            with _note_half_emptied(log):
                now_ms, due_ms = log.clock.now_ms(), removal_due_ms(log)
                active = log.segments.reset_to(offset, now_ms, due_ms)
            # Once more: a flush may have ended since.
            _lower(log, lowest)
            flush.begun_anew(offset)
            log.roll_limit_ms = roll_limit_ms(log.config, active)
            log.epochs.clear()
            log.log_start_offset = log.log_end_offset = offset
        # The new name alone says where the log now begins and ends.
        log.files.sync_directory(log.directory)
        with log.lock, _note_half_emptied(log):
            # Only now: until then a crash may bring back data that needs its snapshots.
            log.producer_state.clear()
    with log.lock:
        flush.emptied(before)


@contextmanager
def _fail_log_on_error(log: LogParts) -> Iterator[None]:
    """What begins here must succeed, or the log takes no more appends: it may still write to a
    file that is about to be removed."""
    try:
        yield
    except (OSError, StorageError) as error:
        flush = log.flush_state
        half_truncated = StorageError(f"half truncated: {log.directory}: {error}")
        flush.fail(flush.half_emptied or half_truncated)
        raise


@contextmanager
def _note_half_emptied(log: LogParts) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        failure = StorageError(f"half emptied: {log.directory}: {error}")
        log.flush_state.note_half_emptied(failure)
        raise
