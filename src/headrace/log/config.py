"""What a log wants to know of its topic's configuration."""

from dataclasses import dataclass, field

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic keys with Kafka's defaults; shared by all partitions of a topic."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = field(default_factory=lambda: frozenset(("delete",)))
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
