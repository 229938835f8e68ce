"""Put a compacted segment in the place of those it was made from, for the log that is open.

    commit ──> rename the old ones ──> sync ──> the new one takes its names ──> sync

What fails behind the commit is finished later, by the next one who changes the segments: by their
names on disk the old segments and the new one cannot be distinguished meanwhile. May run in a
worker; appends and reads go on.
"""

from collections.abc import Sequence
from contextlib import suppress

from headrace.core.errors import StorageError
from headrace.core.files import NotTried
from headrace.log.compaction.cleaned import remove_cleaned
from headrace.log.compaction.request import Replacement
from headrace.log.compaction.swap import commit_swap, finish_swap, undo_swap
from headrace.log.log_parts import LogParts, removal_due_ms
from headrace.log.names import DELETED
from headrace.log.segment import Segment
from headrace.log.segments import HalfReplaced


def replace_segments(log: LogParts, replacement: Replacement) -> bool:
    """Put a compacted segment in the place of those it was made from.

    False, and the `.cleaned` files removed, if one of them is gone or was cut meanwhile.
    """
    with log.structure_lock:
        finish_half_replaced(log)
        base, old_bases = replacement.base_offset, set(replacement.old_base_offsets)
        old = [s for s in log.segments.all[:-1] if s.base_offset in old_bases]
        ends = {s.next_offset for s in old}
        if (
            len(old) != len(old_bases)
            or replacement.next_offset not in ends
            or replacement.next_offset > log.flush_state.recovery_point
            or log.flush_state.failure is not None
        ):
            remove_cleaned(log.files, log.directory, base)
            return False
        try:
            commit_swap(log.files, log.directory, base)
        except OSError as error:
            with suppress(OSError):
                undo_swap(log.files, log.directory, base)
            raise StorageError(f"cannot replace in {log.directory}: {error}") from error
        log.segments.half_replaced = HalfReplaced(replacement, old)
        finish_half_replaced(log)
    return True


def is_half_replaced(log: LogParts) -> bool:
    """A replacement was committed and failed before its end: until it is finished the segments
    are not those on disk, and cannot be compacted."""
    return log.segments.half_replaced is not None


def finish_replacement(log: LogParts) -> None:
    """Go on where a replacement has failed; there may be space or descriptors again."""
    with log.structure_lock:
        finish_half_replaced(log)


def finish_half_replaced(log: LogParts) -> None:
    """For those who hold `structure_lock` and are about to change the segments."""
    half = log.segments.half_replaced
    if half is None:
        return
    base = half.replacement.base_offset
    try:
        if half.renamed is None:
            half.renamed = _rename_replaced(log, half.old)
        finish_swap(log.files, log.directory, base)
        replacement = Segment.existing(log.files, log.directory, base, half.replacement.next_offset)
        with log.lock:
            log.segments.replace(half.renamed, replacement, removal_due_ms(log))
    except OSError as error:
        raise StorageError(f"cannot replace in {log.directory}: {error}") from error
    log.segments.half_replaced = None


def _rename_replaced(log: LogParts, old: Sequence[Segment]) -> list[tuple[Segment, list[str]]]:
    with log.lock:
        log.flush_state.raise_if_failed()
        # What retention has dropped meanwhile is out of the way already.
        renamed = [(s, s.rename(DELETED)) for s in old if s in log.segments.all]
    try:
        # Were an old one to come back, it would overlap the new.
        log.files.sync_directory(log.directory)
    except NotTried:
        raise
    except OSError:
        # Nobody knows what is on disk, and a second sync would not say: the next start will
        # finish what is committed.
        log.segments.half_replaced = None
        raise
    return renamed
