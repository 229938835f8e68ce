"""What a compactor is asked and its result; as JSON between broker and worker process."""

import json
from dataclasses import asdict, dataclass
from typing import Final

MEMORY_BYTES_DEFAULT: Final = 48 << 20


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A closed segment: its offsets, and how many bytes of its data file count."""

    base_offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """All closed segments from the log start up to where compaction may go, oldest first."""

    directory: str
    segments: tuple[SegmentRange, ...]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    producers: tuple[tuple[int, int], ...] = ()
    """Active producers and the last offset each wrote: that batch stays, if only its header,
    because it alone gives a restarted broker the producer's last sequence."""
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    """How much the map of keys may take before it spills to disk."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CompactionRequest":
        fields = json.loads(text)
        fields["segments"] = tuple(SegmentRange(**row) for row in fields["segments"])
        fields["producers"] = tuple((producer, offset) for producer, offset in fields["producers"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Replacement:
    """One new segment, complete and synced under `.cleaned` names, for a run of old ones."""

    base_offset: int
    next_offset: int
    size: int
    old_base_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The segments to put in place, and what the work amounted to."""

    replacements: tuple[Replacement, ...]
    end_offset: int
    """Everything below is compacted now: what the cleaner checkpoint should say."""
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_unreadable: int = 0
    """Batches kept as they are because their CRC or their records make no sense."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CompactionResult":
        fields = json.loads(text)
        fields["replacements"] = tuple(
            Replacement(**{**row, "old_base_offsets": tuple(row["old_base_offsets"])})
            for row in fields["replacements"]
        )
        return cls(**fields)
