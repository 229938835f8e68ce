"""A partition directory for compaction tests: segments written by hand, replaced, read back.

Plays the part of the log that owns the files, in the order the product prescribes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.core.files import FileSystem
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import (
    CompactionRequest,
    CompactionResult,
    Replacement,
    SegmentRange,
)
from headrace.log.compaction.swap import commit_swap, finish_swap
from headrace.log.names import DELETED, LOG, SEGMENT_SUFFIXES, offset_name, parse_offset
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.header import BatchHeader, crc_matches, iterate_headers

DIRECTORY = "/data/t-0"


class CompactedLog:
    """Closed segments in a directory of any file system."""

    def __init__(self, files: FileSystem, directory: str = DIRECTORY) -> None:
        self.files = files
        self.directory = directory
        files.make_directory(directory)
        self.end_offset = 0

    def add_segment(self, batches: Iterable[bytes | bytearray]) -> None:
        """Write batches, whose offsets are in place, as one more segment at the end."""
        content = b"".join(batches)
        base_offset = self.end_offset
        for _, header in iterate_headers(content):
            self.end_offset = header.last_offset + 1
        path = f"{self.directory}/{offset_name(base_offset, LOG)}"
        self.files.write_file(path, content)

    @property
    def base_offsets(self) -> list[int]:
        names = self.files.list_directory(self.directory)
        return [base for name in names if (base := parse_offset(name, LOG)) is not None]

    @property
    def segments(self) -> tuple[SegmentRange, ...]:
        bases = self.base_offsets
        return tuple(
            SegmentRange(base, following, self.files.size(self._path(base)))
            for base, following in zip(bases, [*bases[1:], self.end_offset], strict=True)
        )

    def _path(self, base_offset: int) -> str:
        return f"{self.directory}/{offset_name(base_offset, LOG)}"

    def request(
        self,
        now_ms: int = 0,
        delete_retention_ms: int = 1000,
        segment_bytes: int = 1 << 30,
        producers: Sequence[tuple[int, int]] = (),
        memory_bytes: int = 1 << 20,
    ) -> CompactionRequest:
        return CompactionRequest(
            directory=self.directory,
            segments=self.segments,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            producers=tuple(producers),
            memory_bytes=memory_bytes,
        )

    def compact(self, request: CompactionRequest | None = None) -> CompactionResult:
        """Compact everything and put the result in place."""
        result = compact_log(self.files, request or self.request())
        for replacement in result.replacements:
            self.replace(replacement)
        return result

    def replace(self, replacement: Replacement) -> None:
        commit_swap(self.files, self.directory, replacement.base_offset)
        for base in replacement.old_base_offsets:
            for suffix in SEGMENT_SUFFIXES:
                path = f"{self.directory}/{offset_name(base, suffix)}"
                if self.files.exists(path):
                    self.files.rename(path, path + DELETED)
        self.files.sync_directory(self.directory)
        finish_swap(self.files, self.directory, replacement.base_offset)

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        """Every batch with its records, after checking what must hold of any log."""
        found: list[tuple[BatchHeader, list[Record]]] = []
        next_offset = 0
        for segment in self.segments:
            content = self.files.read_file(self._path(segment.base_offset))
            next_offset = max(next_offset, segment.base_offset)
            for position, header in iterate_headers(content):
                assert crc_matches(memoryview(content), position, header)
                assert header.base_offset >= next_offset, "batches overlap or go back"
                assert header.last_offset < segment.next_offset
                next_offset = header.last_offset + 1
                records = list(iterate_records(content, position, header))
                offsets = [record.offset for record in records]
                assert offsets == sorted(set(offsets))
                assert all(header.base_offset <= o <= header.last_offset for o in offsets)
                if records:
                    assert header.max_timestamp == max(record.timestamp for record in records)
                found.append((header, records))
        return found

    def records(self) -> list[Record]:
        return [record for _, records in self.batches() for record in records]
