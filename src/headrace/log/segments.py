"""The segments of one log in a row: which is for an offset, which go, which is written to."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from headrace.core.files import FileSystem
from headrace.core.ids import Offset
from headrace.log.compaction.request import Replacement
from headrace.log.names import DELETED
from headrace.log.segment import Segment

_base_offset = attrgetter("base_offset")


class PendingDeletion(NamedTuple):
    """A segment that is out of the log, where its files are, and when they may be removed."""

    due_ms: float
    segment: Segment
    paths: list[str]

    def remove(self) -> None:
        self.segment.close()
        for path in self.paths:
            # Gone already, or with the whole directory, which may be renamed at any time.
            with suppress(FileNotFoundError):
                self.segment.data.files.remove(path)


@dataclass(slots=True)
class HalfReplaced:
    """A replacement that is committed on disk and not yet in place, and what it replaces."""

    replacement: Replacement
    old: list[Segment]
    renamed: list[tuple[Segment, list[str]]] | None = None
    """Once all of `old` is out of the way: from then on its names may be those of the new one."""


class LogSegments:
    """Oldest first, never empty; the last one is the active one.

    `all` is replaced, never changed: readers in other threads keep what they have seen.
    """

    __slots__ = ("_directory", "_files", "_pending_deletions", "active", "all", "half_replaced")

    def __init__(self, files: FileSystem, directory: str, segments: Sequence[Segment]) -> None:
        self._files = files
        self._directory = directory
        self.all: tuple[Segment, ...] = tuple(segments)
        self.active = self.all[-1]
        self._pending_deletions: list[PendingDeletion] | None = None
        self.half_replaced: HalfReplaced | None = None

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.all)

    @property
    def base_offsets(self) -> set[Offset]:
        return {segment.base_offset for segment in self.all}

    def number_for(self, offset: int) -> int:
        """The number of the segment in which `offset` lies or would lie."""
        return max(0, bisect_right(self.all, offset, key=_base_offset) - 1)

    def at_or_after(self, offset: int) -> tuple[Segment, ...]:
        """The segment in which `offset` lies or would lie, and those behind it."""
        row = self.all
        return row[max(0, bisect_right(row, offset, key=_base_offset) - 1) :]

    def reaching_past(self, offset: int) -> list[Segment]:
        """Segments with something at `offset` or later, oldest first."""
        found: list[Segment] = []
        for segment in reversed(self.all):
            if segment.next_offset <= offset:
                break
            found.append(segment)
        return found[::-1]

    def roll(self, base_offset: Offset, now_ms: int, reserve_bytes: int = 0) -> Segment:
        """Go on in a new segment; its file is there when this returns, its name not yet synced."""
        segment = Segment(self._files, self._directory, base_offset, now_ms)
        segment.create_file(reserve_bytes)
        self._set((*self.all, segment))
        return segment

    def _set(self, segments: tuple[Segment, ...]) -> None:
        self.all = segments
        self.active = segments[-1]

    def drop(self, segments: Sequence[Segment], due_ms: float) -> None:
        """Take segments out and rename their files; the files themselves go at `due_ms`."""
        # First, so that one that cannot be renamed is still known and can be dropped again.
        self._schedule_deletion(segments, due_ms)
        gone = set(segments)
        self._set(tuple(segment for segment in self.all if segment not in gone))

    def replace(
        self, renamed: Sequence[tuple[Segment, list[str]]], replacement: Segment, due_ms: float
    ) -> None:
        """Put `replacement` in the place of segments whose files are out of the way already."""
        gone = {segment for segment, _ in renamed}
        kept = [segment for segment in self.all if segment not in gone]
        self._set(tuple(sorted((*kept, replacement), key=_base_offset)))
        self._pending_deletions = [
            *(self._pending_deletions or ()),
            *(PendingDeletion(due_ms, s, paths) for s, paths in renamed),
        ]

    def reset_to(self, base_offset: Offset, now_ms: int, due_ms: float) -> Segment:
        """Drop everything and begin at `base_offset`."""
        old = [segment for segment in self.all if segment.size or segment.data.exists]
        self._schedule_deletion(old, due_ms)
        segment = Segment(self._files, self._directory, base_offset, now_ms)
        segment.create_file()
        self._set((segment,))
        return segment

    def _schedule_deletion(self, segments: Sequence[Segment], due_ms: float) -> None:
        if self._pending_deletions is None:
            self._pending_deletions = []
        for segment in segments:
            self._pending_deletions.append(
                PendingDeletion(due_ms, segment, segment.rename(DELETED))
            )

    def take_due(self, now_ms: float | None = None) -> list[PendingDeletion]:
        """Deletions that are due (all, without a time); the caller removes the files."""
        due: list[PendingDeletion] = []
        later: list[PendingDeletion] = []
        for each in self._pending_deletions or ():
            (due if now_ms is None or each.due_ms <= now_ms else later).append(each)
        self._pending_deletions = later or None
        return due

    def put_back(self, deletions: Sequence[PendingDeletion]) -> None:
        """They could not be removed yet."""
        if deletions:
            self._pending_deletions = [*deletions, *(self._pending_deletions or ())]

    def close(self) -> None:
        for segment in self.all:
            segment.close()
