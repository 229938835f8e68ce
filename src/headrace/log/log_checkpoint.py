"""Leave little to recovery: write down what it would otherwise have to find out by reading.

    checkpoint    index entries, producer snapshot, leader epochs; then a flush
    close         a checkpoint after which nothing needs to be recovered

May run in a worker, beside appends and reads.
"""

from headrace.core.errors import StorageError
from headrace.core.files import NotTried
from headrace.core.ids import Offset
from headrace.log.log_parts import LogParts
from headrace.log.retention import remove_deleted
from headrace.log.segment import Segment


def is_due(log: LogParts) -> bool:
    """Whether a checkpoint would write anything."""
    flush = log.flush_state
    return log.is_created and (
        flush.checkpointed_offset != log.log_end_offset
        or flush.recovery_point != flush.checkpointed_offset
        or bool(flush.unsynced_indexes)
        or log.epochs.changed
    )


def log_start_needs_checkpoint(log: LogParts) -> bool:
    """Whether no file name on disk says where the log starts, so that a checkpoint must."""
    first, flush = log.segments.all[0], log.flush_state
    return log.log_start_offset > first.base_offset or (
        log.log_start_offset > 0 and (flush.names_unsynced or flush.is_new or not first.data.exists)
    )


def checkpoint(log: LogParts) -> Offset:
    """Recovery could start at the offset returned.

    That offset becomes the recovery point when the caller has brought it to disk.
    """
    flush = log.flush_state
    if not is_due(log):
        return flush.checkpointed_offset
    with log.structure_lock:
        with log.lock:
            flush.raise_if_failed()
            rolled = flush.take_unsynced_indexes()
            end, size = log.log_end_offset, flush.bytes_since_checkpoint
            truncations = flush.truncations
            try:
                _write_derived(log, rolled)
            except OSError as error:
                flush.put_back_indexes(rolled)
                raise StorageError(f"cannot checkpoint {log.directory}: {error}") from error
        try:
            _sync_indexes(log, rolled)
        except OSError as error:
            with log.lock:
                if isinstance(error, NotTried):
                    flush.put_back_indexes(rolled)
                raise flush.sync_error(error) from error
    log.flush()
    with log.lock:
        return flush.checkpointed(end, size, truncations)


def _write_derived(log: LogParts, rolled: tuple[Segment, ...]) -> None:
    """Unsynced, since all of it can be found anew."""
    for segment in rolled:
        if segment in log.segments.all:
            segment.indexes.persist(final=True)
    active = log.segments.active
    if active.data.exists:
        active.indexes.persist(final=False)
    if log.producer_state.is_small:
        log.producer_state.take_snapshot(log.log_end_offset)
        log.producer_state.remove_stray_snapshots(log.segments.base_offsets)
    if log.epochs.changed:
        log.epochs.store()
        log.flush_state.names_changed()


def _sync_indexes(log: LogParts, rolled: tuple[Segment, ...]) -> None:
    """Recovery will not look at these segments again, so their indexes must be right."""
    for segment in rolled:
        try:
            segment.indexes.sync()
        except OSError:
            # Deleted since: nobody will look things up there any more.
            if segment in log.segments.all:
                raise


def close(log: LogParts) -> None:
    """Leave everything such that the next start has nothing to recover."""
    flush = log.flush_state
    try:
        if log.is_created and flush.failure is None:
            log.flush()
            checkpoint(log)
            log.producer_state.take_snapshot(log.log_end_offset)
            active = log.segments.active
            if active.data.exists:
                active.indexes.persist(final=True)
                if len(active.indexes.offset_index):
                    # The next start will believe them; without entries it reads all anyway.
                    active.indexes.sync()
                if log.config.preallocate:
                    active.data.release_space()
            remove_deleted(log)
    except OSError as error:
        raise StorageError(f"cannot close {log.directory}: {error}") from error
    finally:
        log.segments.close()
    flush.raise_if_failed()
