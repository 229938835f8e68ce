"""Put a cleaned segment in the place of the old ones, so that a crash at any point is harmless.

    cleaned   NNN.log.cleaned, NNN.index.cleaned, …   complete and synced; a crash removes them
    swap      NNN.log.swap …                          committed; a crash finishes the rest
    final     NNN.log …                               the old segments are gone

The renaming of the data file to `.swap`, once its directory is synced, is the point of no return;
the indexes are renamed before it, so a committed data file has them. The old segments are put out
of the way, and that synced, before the new one takes its name: otherwise an old one could come
back after a power cut and overlap the new.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from headrace.core.errors import CorruptBatch
from headrace.core.files import FileSystem
from headrace.log.batch_scan import scan_headers
from headrace.log.compaction.cleaned import remove_cleaned
from headrace.log.compaction.request import CompactionResult, Replacement
from headrace.log.names import (
    CLEANED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    offset_name,
    parse_offset,
)

logger = logging.getLogger(__name__)


class Replaceable(Protocol):
    """The log that owns the segments."""

    files: FileSystem
    directory: str

    def replace_segments(self, replacement: Replacement) -> bool: ...


# Indexes first: whoever sees the data file under its new name finds them there too.
_ORDER = (TIME_INDEX, INDEX, LOG)


def commit_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """`.cleaned` to `.swap`: after this the replacement will happen, crash or not."""
    _rename_all(files, directory, base_offset, CLEANED, SWAP)
    files.sync_directory(directory)


def undo_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """After `commit_swap` has failed: as if it had not been tried.

    What stayed behind would be finished by some later start, and bring back what has gone since.
    """
    path = f"{directory}/{offset_name(base_offset, '')}"
    if files.exists(path + LOG + SWAP):
        # First: what is not committed is removed as a whole, whatever a crash leaves of it.
        files.rename(path + LOG + SWAP, path + LOG + CLEANED)
    for suffix in SEGMENT_SUFFIXES:
        if files.exists(path + suffix + SWAP):
            files.remove(path + suffix + SWAP)
    remove_cleaned(files, directory, base_offset)


def finish_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """`.swap` to the segment's own names; the old segments must be out of the way, and synced."""
    _rename_all(files, directory, base_offset, SWAP, "")
    files.sync_directory(directory)


def _rename_all(
    files: FileSystem, directory: str, base_offset: int, old_suffix: str, new_suffix: str
) -> None:
    for suffix in _ORDER:
        path = f"{directory}/{offset_name(base_offset, suffix)}"
        if files.exists(path + old_suffix):
            files.rename(path + old_suffix, path + new_suffix)


def apply_replacements(log: Replaceable, result: CompactionResult) -> bool:
    """Replace segment after segment, oldest first; False if the log has changed meanwhile.

    In order, and no further than the first refusal: a tombstone may only go once the value that
    it deletes, in an older segment, has gone.
    """
    for number, replacement in enumerate(result.replacements):
        if not log.replace_segments(replacement):
            for unused in result.replacements[number + 1 :]:
                remove_cleaned(log.files, log.directory, unused.base_offset)
            return False
    return True


def recover_swaps(files: FileSystem, directory: str, names: Sequence[str]) -> bool:
    """Finish or undo replacements that a crash interrupted; True if names have changed.

    `names` are those in `directory`. To be called before its segments are opened.
    """
    leftovers = [name for name in names if name.endswith((CLEANED, SWAP))]
    if not leftovers:
        return False
    # Not committed while the data file still is `.cleaned`, whatever its indexes are called.
    undone = {_digits(name) for name in leftovers if name.endswith(LOG + CLEANED)}
    committed: dict[str, None] = {}
    for name in leftovers:
        if name.endswith(CLEANED) or _digits(name) in undone:
            files.remove(f"{directory}/{name}")
        else:
            committed[_digits(name)] = None
    for digits in committed:
        logger.warning("finishing a replacement: segment=%s", f"{directory}/{digits}{LOG}")
        # Without a `.log.swap` only an index has yet to take its name.
        if digits + LOG + SWAP in leftovers:
            _sync_commit(files, directory)
            _remove_replaced(files, directory, names, int(digits))
        _rename_all(files, directory, int(digits), SWAP, "")
    files.sync_directory(directory)
    return True


def _sync_commit(files: FileSystem, directory: str) -> None:
    """The process may have died between the renaming that commits and its sync: nothing else may
    reach the disk before it does."""
    files.sync_directory(directory)


def _digits(name: str) -> str:
    return name.partition(".")[0]


def _remove_replaced(
    files: FileSystem, directory: str, names: Sequence[str], base_offset: int
) -> None:
    """Remove the old segments whose offsets the committed one has taken over.

    An old one past the last batch that stayed is left: it overlaps nothing, and all that is in it
    has been superseded by what follows, which compaction will find again.
    """
    end = _end_offset(files, directory, base_offset)
    for name in names:
        old = parse_offset(name, LOG)
        if old is not None and base_offset <= old < end:
            for suffix in SEGMENT_SUFFIXES:
                path = f"{directory}/{offset_name(old, suffix)}"
                if files.exists(path):
                    files.remove(path)
    files.sync_directory(directory)


def _end_offset(files: FileSystem, directory: str, base_offset: int) -> int:
    """The offset behind the last batch of the committed segment, or behind its base."""
    end = base_offset + 1
    file = files.open(f"{directory}/{offset_name(base_offset, LOG + SWAP)}")
    try:
        for _, header in scan_headers(file, 0, file.size()):
            end = header.last_offset + 1
    except CorruptBatch as error:
        # It was synced before it was committed: the disk has spoilt it since. What lies behind
        # the damage is better kept from the old segments.
        logger.warning("a committed segment is damaged: error=%s", error)
    finally:
        file.close()
    return end
