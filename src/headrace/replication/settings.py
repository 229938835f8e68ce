"""A topic's configs in the form the hot path wants them: resolved once, read per request.

A new topic key comes into force here: as an attribute, a rule for batches, or for `log/` in
`log_config`.
"""

from typing import Final

from headrace.core.broker_configs import BrokerConfig
from headrace.core.topic_configs import TopicConfig
from headrace.log.config import MAX_INT64, LogConfig
from headrace.protocol.compression import Codec
from headrace.protocol.records.validate import BatchRules

PRODUCER_DECIDES: Final = "producer"


class TopicSettings:
    """Shared by all partitions of a topic; replaced as a whole when a config changes."""

    __slots__ = (
        "__weakref__",
        "append_time",
        "codec",
        "config",
        "level",
        "log",
        "min_insync_replicas",
        "rules",
    )

    def __init__(self, config: TopicConfig, broker: BrokerConfig) -> None:
        self.config = config
        compacted = "compact" in config.cleanup_policy
        self.append_time = config.message_timestamp_type == "LogAppendTime"
        self.min_insync_replicas = config.min_insync_replicas
        self.rules = BatchRules(
            max_message_bytes=config.max_message_bytes,
            append_time=self.append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            each_record=compacted or broker.log_validate_records,
            keys_required=compacted,
        )
        # None: batches are kept as the producer compressed them.
        self.codec: Codec | None = None
        self.level: int | None = None
        if config.compression_type != PRODUCER_DECIDES:
            self.codec = (
                Codec.NONE
                if config.compression_type == "uncompressed"
                else Codec[config.compression_type.upper()]
            )
            self.level = {
                Codec.GZIP: config.compression_gzip_level,
                Codec.LZ4: config.compression_lz4_level,
                Codec.ZSTD: config.compression_zstd_level,
            }.get(self.codec)
        self.log = log_config(config, broker)


def log_config(config: TopicConfig, broker: BrokerConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=config.segment_index_bytes,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        cleanup_policy=frozenset(config.cleanup_policy),
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        file_delete_delay_ms=config.file_delete_delay_ms,
        preallocate=config.preallocate,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        flush_messages=config.flush_messages,
        # The broker's key takes a negative number for never.
        flush_ms=MAX_INT64 if config.flush_ms < 0 else config.flush_ms,
    )
