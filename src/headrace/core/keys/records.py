"""What batches may look like, and what an acknowledged one survives."""

from dataclasses import dataclass

from headrace.core.config_keys import (
    LONG_MAX,
    ConfigType,
    LevelOrDefault,
    OneOf,
    Range,
    Update,
    key,
)

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_BOOLEAN, _STRING = ConfigType.BOOLEAN, ConfigType.STRING
_INT, _LONG = ConfigType.INT, ConfigType.LONG
_CLUSTER_WIDE = Update.CLUSTER_WIDE


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordKeys:
    """Limits and rewriting of batches, timestamps, durability."""

    # Records.
    message_max_bytes: int = key(
        _INT, 1_048_588, Range(0), update=_CLUSTER_WIDE, doc="Largest record batch accepted."
    )
    compression_type: str = key(
        _STRING,
        "producer",
        OneOf(CODECS),
        update=_CLUSTER_WIDE,
        doc="Codec of stored batches; `producer` keeps the batch as it was sent.",
    )
    compression_gzip_level: int = key(
        _INT,
        -1,
        LevelOrDefault(1, 9),
        update=_CLUSTER_WIDE,
        doc="Level when making gzip.",
    )
    compression_lz4_level: int = key(
        _INT, 9, Range(1, 17), update=_CLUSTER_WIDE, doc="Level when making lz4."
    )
    compression_zstd_level: int = key(
        _INT, 3, Range(-131_072, 22), update=_CLUSTER_WIDE, doc="Level when making zstd."
    )
    log_message_timestamp_type: str = key(
        _STRING,
        "CreateTime",
        OneOf(TIMESTAMP_TYPES),
        update=_CLUSTER_WIDE,
        doc="Keep the producer's timestamps, or stamp batches when they are appended.",
    )
    log_message_timestamp_before_max_ms: int = key(
        _LONG,
        LONG_MAX,
        Range(0),
        update=_CLUSTER_WIDE,
        doc="How far a record's timestamp may lie in the past.",
    )
    log_message_timestamp_after_max_ms: int = key(
        _LONG,
        3_600_000,
        Range(0),
        update=_CLUSTER_WIDE,
        doc="How far a record's timestamp may lie in the future.",
    )
    log_validate_records: bool = key(
        _BOOLEAN,
        False,
        doc="Headrace only. Decode every produced batch and check it record by record, not by its "
        "header alone. Compacted topics and recompression always do.",
    )
    producer_id_expiration_ms: int = key(
        _INT,
        86_400_000,
        Range(1),
        update=_CLUSTER_WIDE,
        doc="Forget an idempotent producer that was silent for this long, by the broker's clock; "
        "a restart counts as a sign of life.",
    )

    # Durability.
    log_flush_policy: str = key(
        _STRING,
        "fsync",
        OneOf(("fsync", "os")),
        doc="Headrace only. What acks=all waits for: `fsync`, the batch is on disk (one flush "
        "covers all batches that came meanwhile); `os`, Kafka's rule, the batch is in the page "
        "cache of every in-sync replica.",
        crash="fsync: nothing that acks=all acknowledged; acks=1 may lose what was not yet flushed "
        "when the power fails. os: a killed process loses nothing, a power cut or kernel "
        "crash may lose anything the kernel had not written yet.",
    )
    log_flush_interval_messages: int = key(
        _LONG,
        LONG_MAX,
        Range(1),
        update=_CLUSTER_WIDE,
        doc="Flush a partition after this many records, whatever the policy.",
        crash="Under `os`, a power cut may lose up to this many records per partition.",
    )
    log_flush_interval_ms: int | None = key(
        _LONG,
        None,
        update=_CLUSTER_WIDE,
        doc="Flush a partition that has unflushed records older than this; negative: never; "
        "log.flush.scheduler.interval.ms counts when this is not set.",
        crash="Under `os`, a power cut may lose up to this much time of records.",
    )
    log_flush_scheduler_interval_ms: int = key(
        _LONG, LONG_MAX, doc="Stands in for log.flush.interval.ms where that is not set."
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        _INT,
        5_000,
        Range(0),
        doc="How often recovery points are written down, so that a restart after a crash scans "
        "only what came later; also after every 256 MiB. Kafka: 60000.",
        crash="Nothing; it bounds the time of recovery, not what is kept.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        _LONG,
        5_000,
        Range(0),
        doc="How often it is written down up to where each partition is committed.",
        crash="Nothing; a replica that follows shows less until its leader has told it more.",
    )
