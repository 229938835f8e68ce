"""Segments, retention and compaction."""

from dataclasses import dataclass

from headrace.core.config_keys import (
    LONG_MAX,
    ConfigType,
    OneOf,
    Range,
    Update,
    key,
)

CLEANUP_POLICIES = ("compact", "delete")

_BOOLEAN, _LIST = ConfigType.BOOLEAN, ConfigType.LIST
_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_CLUSTER_WIDE = Update.CLUSTER_WIDE


@dataclass(frozen=True, kw_only=True, eq=False)
class StorageKeys:
    """How logs are cut into files, and when what goes."""

    # Segments, retention, compaction.
    log_segment_bytes: int = key(
        _INT, 1_073_741_824, Range(1_048_576), update=_CLUSTER_WIDE, doc="Size of a segment file."
    )
    log_roll_ms: int | None = key(
        _LONG, None, Range(1), update=_CLUSTER_WIDE, doc="Age at which a segment is closed."
    )
    log_roll_hours: int = key(_INT, 168, Range(1), doc="Stands in for log.roll.ms.")
    log_roll_jitter_ms: int | None = key(
        _LONG,
        None,
        Range(0),
        update=_CLUSTER_WIDE,
        doc="Random time taken off the age limit of a segment.",
    )
    log_roll_jitter_hours: int = key(_INT, 0, Range(0), doc="Stands in for log.roll.jitter.ms.")
    log_index_size_max_bytes: int = key(
        _INT, 10_485_760, Range(4), update=_CLUSTER_WIDE, doc="Size at which an index is full."
    )
    log_index_interval_bytes: int = key(
        _INT, 4_096, Range(0), update=_CLUSTER_WIDE, doc="Data bytes between two index entries."
    )
    log_preallocate: bool = key(
        _BOOLEAN, False, update=_CLUSTER_WIDE, doc="Reserve a segment's disk space in advance."
    )
    log_retention_ms: int | None = key(
        _LONG, None, update=_CLUSTER_WIDE, doc="Age at which records go; -1: never."
    )
    log_retention_minutes: int | None = key(_INT, None, doc="Stands in for log.retention.ms.")
    log_retention_hours: int = key(_INT, 168, doc="Stands in for log.retention.minutes.")
    log_retention_bytes: int = key(
        _LONG, -1, update=_CLUSTER_WIDE, doc="Size at which the oldest segments go; -1: never."
    )
    log_retention_check_interval_ms: int = key(
        _LONG, 300_000, Range(1), doc="How often partitions are searched for segments to delete."
    )
    log_segment_delete_delay_ms: int = key(
        _LONG, 60_000, Range(0), update=_CLUSTER_WIDE, doc="Time from removal to file deletion."
    )
    log_cleanup_policy: tuple[str, ...] = key(
        _LIST,
        ("delete",),
        OneOf(CLEANUP_POLICIES),
        update=_CLUSTER_WIDE,
        doc="Delete old segments, compact to the newest record per key, or both.",
    )
    log_cleaner_backoff_ms: int = key(
        _LONG, 15_000, Range(0), update=_CLUSTER_WIDE, doc="Pause when nothing needs compaction."
    )
    log_cleaner_dedupe_buffer_size: int = key(
        _LONG,
        50_331_648,
        Range(1_048_576),
        update=_CLUSTER_WIDE,
        doc="Memory for the compactor's map of keys. Kafka: 134217728.",
    )
    log_cleaner_min_cleanable_ratio: float = key(
        _DOUBLE,
        0.5,
        Range(0, 1),
        update=_CLUSTER_WIDE,
        doc="Share of a log that must be dirty before it is compacted.",
    )
    log_cleaner_delete_retention_ms: int = key(
        _LONG, 86_400_000, Range(0), update=_CLUSTER_WIDE, doc="How long tombstones are kept."
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        _LONG, 0, Range(0), update=_CLUSTER_WIDE, doc="Age below which a record is not compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        _LONG,
        LONG_MAX,
        Range(1),
        update=_CLUSTER_WIDE,
        doc="Age by which a record must have been offered to compaction.",
    )
