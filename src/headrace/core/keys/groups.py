"""Consumer groups and committed offsets."""

from dataclasses import dataclass

from headrace.core.config_keys import INT_MAX, ConfigType, Range, key
from headrace.core.keys.consumer_groups import ConsumerGroupKeys

_INT, _LONG = ConfigType.INT, ConfigType.LONG


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupKeys(ConsumerGroupKeys):
    """Limits of classic groups, the life of offsets, and the topic they are kept in."""

    group_initial_rebalance_delay_ms: int = key(
        _INT,
        3_000,
        Range(0),
        doc="How long the first rebalance of an empty group waits for more members to join.",
    )
    group_min_session_timeout_ms: int = key(
        _INT, 6_000, Range(1), doc="Shortest session timeout that a classic member may ask for."
    )
    group_max_session_timeout_ms: int = key(
        _INT, 1_800_000, Range(1), doc="Longest session timeout that a classic member may ask for."
    )
    group_max_size: int = key(
        _INT, INT_MAX, Range(1), doc="Most members of one classic group; others are refused."
    )
    offset_metadata_max_bytes: int = key(
        _INT, 4_096, Range(0), doc="Longest text that may be committed with an offset."
    )
    offsets_retention_minutes: int = key(
        _INT,
        10_080,
        Range(1),
        doc="How long committed offsets are kept once their group is empty, or, for a reader "
        "outside any group, after its last commit.",
    )
    offsets_retention_check_interval_ms: int = key(
        _LONG, 600_000, Range(1), doc="How often offsets are searched for expired ones."
    )
    offsets_topic_num_partitions: int = key(
        _INT,
        50,
        Range(1),
        doc="Partitions of __consumer_offsets; counts when that topic is created.",
    )
    offsets_topic_replication_factor: int = key(
        ConfigType.SHORT,
        1,
        Range(1),
        doc="Replicas of __consumer_offsets; groups wait until there are as many brokers. Kafka: "
        "3.",
    )
    offsets_topic_segment_bytes: int = key(
        _INT,
        104_857_600,
        Range(1_048_576),
        doc="Segment size of __consumer_offsets; small ones are compacted and loaded sooner.",
    )
    offsets_topic_compression_codec: int = key(
        _INT,
        0,
        Range(0, 4),
        doc="Codec of the batches written to __consumer_offsets: 0 none, 1 gzip, 2 snappy, "
        "3 lz4, 4 zstd.",
    )
