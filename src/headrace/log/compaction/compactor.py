"""Two passes over closed segments: find the newest record of each key, write what stays.

Plain calls over `core.files`, so that the same code runs in its own process next to a broker and
in line in the simulation. Live files are only read; new ones end in `.cleaned`.

Batches of transactions and control batches are kept as they are, and their keys supersede
nothing: what was aborted is not known here. So is a batch whose CRC or records make no sense,
since rewriting it would make damage look sound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.files import Buffer, FileSystem
from headrace.log.compaction.batches import batch_records, read_batches, scan_keys
from headrace.log.compaction.cleaned import CleanedSegment, remove_cleaned
from headrace.log.compaction.key_map import KeyMap, Survivors
from headrace.log.compaction.request import (
    CompactionRequest,
    CompactionResult,
    Replacement,
    SegmentRange,
)
from headrace.log.compaction.rewrite import (
    keep_records,
    keep_records_and_tombstones,
    pack_empty,
    pack_kept,
)
from headrace.log.config import MAX_INT64
from headrace.log.names import CLEANED, LOG, offset_name
from headrace.log.sparse_index import OFFSET_ENTRY
from headrace.protocol.records.header import (
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_matches,
)

_PLAIN: Final = 0
_WITH_TOMBSTONES: Final = 1
_VERBATIM: Final = 2
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1


@dataclass(slots=True)
class _Scanned:
    """A segment after the first pass; its batches and records follow those of the one before."""

    segment: SegmentRange
    first_batch: int
    first_record: int
    records: int = 0
    due: bool = False
    """Something besides superseded records may have to change: tombstones, empty batches."""


def compact_log(files: FileSystem, request: CompactionRequest) -> CompactionResult:
    """Compact the segments of `request`; the new segments of the result are complete and synced."""
    return _Compaction(files, request).run()


class _Compaction:
    def __init__(self, files: FileSystem, request: CompactionRequest) -> None:
        self._files = files
        self._request = request
        self._last_batches = frozenset(request.producers)
        # One byte per batch: what the first pass found it to be.
        self._kinds = bytearray()
        self._records = 0
        self._bytes_read = 0
        self._unreadable = 0
        self._kept = 0

    def run(self) -> CompactionResult:
        segments = self._request.segments
        assert segments, "nothing to compact"
        scratch = offset_name(segments[0].base_offset, ".keys" + CLEANED)
        keys = KeyMap(
            self._files,
            f"{self._request.directory}/{scratch}",
            self._request.memory_bytes,
            sum(segment.size for segment in segments),
        )
        try:
            scanned = [self._scan(segment, keys) for segment in segments]
            survivors = keys.survivors(self._records)
        finally:
            keys.close()
        replacements: list[Replacement] = []
        for group in _groups(scanned, self._request):
            if len(group) > 1 or _changes(group[0], survivors):
                replacements.append(self._write(group, survivors))
            else:
                self._kept += group[0].records
        self._files.sync_directory(self._request.directory)
        return CompactionResult(
            replacements=tuple(replacements),
            end_offset=segments[-1].next_offset,
            records_read=self._records,
            records_kept=self._kept,
            bytes_read=self._bytes_read,
            bytes_written=sum(replacement.size for replacement in replacements),
            batches_unreadable=self._unreadable,
        )

    def _batches(self, segment: SegmentRange) -> Iterator[tuple[bytes, int, BatchHeader]]:
        name = offset_name(segment.base_offset, LOG)
        file = self._files.open(f"{self._request.directory}/{name}")
        try:
            yield from read_batches(file, segment.size)
        finally:
            file.close()

    # First pass

    def _scan(self, segment: SegmentRange, keys: KeyMap) -> _Scanned:
        scanned = _Scanned(segment, len(self._kinds), self._records)
        for chunk, at, header in self._batches(segment):
            self._bytes_read += header.batch_length + LENGTH_OVERHEAD
            found = self._keys_of(chunk, at, header)
            if found is None:
                self._kinds.append(_VERBATIM)
                continue
            batch_keys, has_tombstones = found
            count = len(batch_keys)
            if None in batch_keys:
                scanned.due = True
                for number, key in enumerate(batch_keys, self._records):
                    if key is not None:
                        keys.add([key], number)
            else:
                keys.add(batch_keys, self._records)  # type: ignore[arg-type]  # no None in it
            self._records += count
            scanned.records += count
            if has_tombstones:
                self._kinds.append(_WITH_TOMBSTONES)
                horizon = header.delete_horizon
                scanned.due |= horizon is None or horizon <= self._request.now_ms
            else:
                self._kinds.append(_PLAIN)
                scanned.due |= count == 0 and not self._is_last_of_producer(header)
            keys.spill_if_full(self._bytes_read)
        return scanned

    def _keys_of(
        self, chunk: bytes, at: int, header: BatchHeader
    ) -> tuple[list[bytes | None], bool] | None:
        """The batch's keys; None if it must be kept as it is."""
        if header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            return None
        found = None
        if crc_matches(memoryview(chunk), at, header):
            try:
                found = scan_keys(*batch_records(chunk, at, header), header.record_count)
            except HeadraceError:
                found = None
        if found is None:
            self._unreadable += 1
        return found

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        return (
            header.producer_id >= 0
            and (header.producer_id, header.last_offset) in self._last_batches
        )

    # Second pass

    def _write(self, group: list[_Scanned], survivors: Survivors) -> Replacement:
        request = self._request
        base_offset = group[0].segment.base_offset
        cleaned = CleanedSegment(
            self._files, request.directory, base_offset, request.index_interval_bytes
        )
        try:
            for scanned in group:
                self._copy(scanned, survivors, cleaned)
            cleaned.finish()
        except BaseException:
            cleaned.close()
            remove_cleaned(self._files, request.directory, base_offset)
            raise
        return Replacement(
            base_offset=base_offset,
            next_offset=group[-1].segment.next_offset,
            size=cleaned.size,
            old_base_offsets=tuple(scanned.segment.base_offset for scanned in group),
        )

    def _copy(self, scanned: _Scanned, survivors: Survivors, cleaned: CleanedSegment) -> None:
        record = scanned.first_record
        kinds = memoryview(self._kinds)[scanned.first_batch :]
        for kind, (chunk, at, header) in zip(kinds, self._batches(scanned.segment), strict=False):
            whole = memoryview(chunk)[at : at + header.batch_length + LENGTH_OVERHEAD]
            if kind == _VERBATIM:
                cleaned.append(whole, header.last_offset, header.max_timestamp)
                continue
            count = header.record_count
            bits = survivors.of(record, count)
            record += count
            if kind == _PLAIN and count and bits == (1 << count) - 1:
                cleaned.append(whole, header.last_offset, header.max_timestamp)
                self._kept += count
                continue
            batch = self._shrink(kind, chunk, at, header, bits, whole) if bits else None
            if batch is None:
                if not self._is_last_of_producer(header):
                    continue
                batch = pack_empty(header)
            # The header's own field, since a shorter batch may have an older newest record.
            max_timestamp = int.from_bytes(batch[35:43], "big", signed=True)
            cleaned.append(batch, header.last_offset, max_timestamp)

    def _shrink(
        self,
        kind: int,
        chunk: bytes,
        at: int,
        header: BatchHeader,
        bits: int,
        whole: memoryview,
    ) -> Buffer | None:
        """The batch without what goes; None if all of it does."""
        data, start, _ = batch_records(chunk, at, header)
        horizon = header.delete_horizon
        if kind == _PLAIN:
            kept = keep_records(data, start, header, bits)
        else:
            drop = horizon is not None and horizon <= self._request.now_ms
            kept = keep_records_and_tombstones(
                data, start, header, bits, drop_tombstones=drop, delete_horizon=None
            )
            if kept.has_tombstones and horizon is None:
                # It is stored in 64 bits, and `delete.retention.ms` may be as large as these.
                horizon = min(self._request.now_ms + self._request.delete_retention_ms, MAX_INT64)
                kept = keep_records_and_tombstones(
                    data, start, header, bits, drop_tombstones=False, delete_horizon=horizon
                )
            elif kept.count == header.record_count:
                self._kept += kept.count
                return whole
        self._kept += kept.count
        return pack_kept(header, kept, horizon) if kept.count else None


def _changes(scanned: _Scanned, survivors: Survivors) -> bool:
    """Whether a rewrite of this one segment would leave anything out or mark anything."""
    alive = survivors.of(scanned.first_record, scanned.records).bit_count()
    return scanned.due or alive < scanned.records


def _groups(scanned: list[_Scanned], request: CompactionRequest) -> Iterator[list[_Scanned]]:
    """Neighbours that together still make one segment, by their sizes before."""
    index_entries_max = request.segment_index_bytes // OFFSET_ENTRY.size
    group: list[_Scanned] = []
    size = 0
    for part in scanned:
        segment = part.segment
        if group and (
            size + segment.size > request.segment_bytes
            or segment.next_offset - 1 - group[0].segment.base_offset > _MAX_RELATIVE_OFFSET
            or (size + segment.size) // max(request.index_interval_bytes, 1) > index_entries_max
        ):
            yield group
            group, size = [], 0
        group.append(part)
        size += segment.size
    if group:
        yield group
