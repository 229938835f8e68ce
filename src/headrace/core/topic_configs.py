"""The configuration of one topic: Kafka's keys, and where each takes its value from.

    set on the topic  >  the broker's key of the same meaning, by its own order  >  default

Left out: remote storage, local retention and replication throttles, which have no effect here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_keys import (
    LONG_MAX,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    LevelOrDefault,
    OneOf,
    Range,
    Synonym,
    drop_invalid,
    format_value,
    key,
    keys_of,
    suggestion,
)
from headrace.core.errors import InvalidConfig
from headrace.core.keys.records import CODECS, TIMESTAMP_TYPES
from headrace.core.keys.storage import CLEANUP_POLICIES

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_MINUTE, _HOUR = 60_000, 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Typed values of all topic keys; `resolve` builds it for a topic."""

    cleanup_policy: tuple[str, ...] = key(
        _LIST,
        ("delete",),
        OneOf(CLEANUP_POLICIES),
        synonyms=["log.cleanup.policy"],
        doc="`delete` removes old segments by the retention limits, `compact` keeps the newest "
        "record of each key, both together do both; empty: nothing is removed.",
    )
    compression_gzip_level: int = key(
        _INT,
        -1,
        LevelOrDefault(1, 9),
        synonyms=["compression.gzip.level"],
        doc="Level used when compression.type is gzip and the producer sent something else.",
    )
    compression_lz4_level: int = key(
        _INT,
        9,
        Range(1, 17),
        synonyms=["compression.lz4.level"],
        doc="Level used when compression.type is lz4 and the producer sent something else.",
    )
    compression_type: str = key(
        _STRING,
        "producer",
        OneOf(CODECS),
        synonyms=["compression.type"],
        doc="Codec of stored batches. `producer` stores what was sent; with any other value a "
        "batch that was sent differently is recompressed.",
    )
    compression_zstd_level: int = key(
        _INT,
        3,
        Range(-131_072, 22),
        synonyms=["compression.zstd.level"],
        doc="Level used when compression.type is zstd and the producer sent something else.",
    )
    delete_retention_ms: int = key(
        _LONG,
        86_400_000,
        Range(0),
        synonyms=["log.cleaner.delete.retention.ms"],
        doc="How long compaction keeps a tombstone, so that readers can see the deletion.",
    )
    file_delete_delay_ms: int = key(
        _LONG,
        60_000,
        Range(0),
        synonyms=["log.segment.delete.delay.ms"],
        doc="Time between taking a segment out of the log and deleting its files.",
    )
    flush_messages: int = key(
        _LONG,
        LONG_MAX,
        Range(1),
        synonyms=["log.flush.interval.messages"],
        doc="Flush the partition whenever this many records are not yet on disk.",
        crash="Under log.flush.policy=os, a power cut may lose up to this many records.",
    )
    flush_ms: int = key(
        _LONG,
        LONG_MAX,
        Range(0),
        synonyms=["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        doc="Flush the partition whenever records have waited this long to reach the disk.",
        crash="Under log.flush.policy=os, a power cut may lose up to this much time of records.",
    )
    index_interval_bytes: int = key(
        _INT,
        4_096,
        Range(0),
        synonyms=["log.index.interval.bytes"],
        doc="Data bytes between two entries of the offset index.",
    )
    internal_segment_bytes: int | None = key(
        _INT,
        None,
        internal=True,
        doc="Segment size without the lower limit of segment.bytes; for tests.",
    )
    max_compaction_lag_ms: int = key(
        _LONG,
        LONG_MAX,
        Range(1),
        synonyms=["log.cleaner.max.compaction.lag.ms"],
        doc="Age by which a record must have been offered to compaction, however clean the log.",
    )
    max_message_bytes: int = key(
        _INT,
        1_048_588,
        Range(0),
        synonyms=["message.max.bytes"],
        doc="Largest record batch accepted, as it is stored.",
    )
    message_timestamp_after_max_ms: int = key(
        _LONG,
        3_600_000,
        Range(0),
        synonyms=["log.message.timestamp.after.max.ms"],
        doc="How far a record's timestamp may lie in the future (CreateTime only).",
    )
    message_timestamp_before_max_ms: int = key(
        _LONG,
        LONG_MAX,
        Range(0),
        synonyms=["log.message.timestamp.before.max.ms"],
        doc="How far a record's timestamp may lie in the past (CreateTime only).",
    )
    message_timestamp_type: str = key(
        _STRING,
        "CreateTime",
        OneOf(TIMESTAMP_TYPES),
        synonyms=["log.message.timestamp.type"],
        doc="`CreateTime` keeps the producer's timestamps, `LogAppendTime` stamps each batch when "
        "it is appended.",
    )
    min_cleanable_dirty_ratio: float = key(
        _DOUBLE,
        0.5,
        Range(0, 1),
        synonyms=["log.cleaner.min.cleanable.ratio"],
        doc="Share of the log that must be dirty before it is compacted.",
    )
    min_compaction_lag_ms: int = key(
        _LONG,
        0,
        Range(0),
        synonyms=["log.cleaner.min.compaction.lag.ms"],
        doc="Age below which a record is left alone by compaction.",
    )
    min_insync_replicas: int = key(
        _INT,
        1,
        Range(1),
        synonyms=["min.insync.replicas"],
        doc="In-sync replicas without which a write with acks=all is refused; counted up to the"
        " number of replicas that a topic has.",
        crash="With 1, an acknowledged record may live on one disk only.",
    )
    preallocate: bool = key(
        _BOOLEAN,
        False,
        synonyms=["log.preallocate"],
        doc="Reserve the disk space of a segment when it is created.",
    )
    retention_bytes: int = key(
        _LONG,
        -1,
        synonyms=["log.retention.bytes"],
        doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
    )
    retention_ms: int = key(
        _LONG,
        604_800_000,
        Range(-1),
        synonyms=[
            "log.retention.ms",
            Synonym("log.retention.minutes", _MINUTE),
            Synonym("log.retention.hours", _HOUR),
        ],
        doc="Age of its newest record at which a segment is deleted; -1: no limit.",
    )
    segment_bytes: int = key(
        _INT,
        1_073_741_824,
        Range(1_048_576),
        synonyms=["log.segment.bytes"],
        doc="Size of a segment file; retention and compaction work segment by segment.",
    )
    segment_index_bytes: int = key(
        _INT,
        10_485_760,
        Range(4),
        synonyms=["log.index.size.max.bytes"],
        doc="Size at which an index is full and its segment is closed.",
    )
    segment_jitter_ms: int = key(
        _LONG,
        0,
        Range(0),
        synonyms=["log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOUR)],
        doc="Random time taken off segment.ms, so that partitions do not roll all at once.",
    )
    segment_ms: int = key(
        _LONG,
        604_800_000,
        Range(1),
        synonyms=["log.roll.ms", Synonym("log.roll.hours", _HOUR)],
        doc="Age at which a segment is closed even if it is not full.",
    )
    unclean_leader_election_enable: bool = key(
        _BOOLEAN,
        False,
        synonyms=["unclean.leader.election.enable"],
        doc="Let a replica that is not in sync become leader when no other is left. Stored and "
        "shown, without effect: a partition has one replica, so there is nobody to elect.",
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> "TopicConfig":
        """The values in force for a topic. `overrides` were validated when they were set."""
        overrides = drop_invalid(overrides, TOPIC_KEYS)
        inherited = _inherited(broker)
        if not overrides:
            return inherited
        typed: dict[str, Any] = {name: getattr(inherited, name) for name in cls.__slots__}
        for name, text in overrides.items():
            known = TOPIC_KEYS[name]
            typed[known.attribute] = known.parse(text)
        if typed.get("internal_segment_bytes") is not None:
            typed["segment_bytes"] = typed["internal_segment_bytes"]
        return cls(**typed)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy


TOPIC_KEYS: Mapping[str, ConfigKey] = MappingProxyType(keys_of(TopicConfig))


def validate(name: str, value: str) -> None:
    """Refuse an unknown key or a value it does not take, in Kafka's words."""
    known = TOPIC_KEYS.get(name)
    if known is None:
        hint = suggestion(name, TOPIC_KEYS)
        raise InvalidConfig(f"Unknown topic config name: {name}" + (f" ({hint})" if hint else ""))
    known.parse(value)


def validate_together(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse keys that are fine one by one but contradict each other."""
    for name, value in overrides.items():
        validate(name, value)
    config = TopicConfig.resolve(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )


def describe(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Every key as DescribeConfigs answers it for a topic with these overrides."""
    entries = []
    overrides = drop_invalid(overrides, TOPIC_KEYS)
    config = TopicConfig.resolve(overrides, broker)
    for known in TOPIC_KEYS.values():
        is_set = known.name in overrides
        if known.internal and not is_set:
            continue
        value = format_value(
            known.parse(overrides[known.name]) if is_set else getattr(config, known.attribute)
        )
        found: tuple[ConfigSynonym, ...] = ()
        if known.synonyms:
            found = broker.synonyms_of(known.synonyms[0].name)
        if is_set:
            found = (ConfigSynonym(known.name, value, ConfigSource.TOPIC_CONFIG), *found)
        source = found[0].source if found else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(known, value, source, False, found))
    return entries


@lru_cache(maxsize=4)
def _inherited(broker: BrokerConfig) -> TopicConfig:
    """What a topic without overrides gets; kept, since most topics have none."""
    return TopicConfig(
        **{known.attribute: _from_broker(known, broker) for known in TOPIC_KEYS.values()}
    )


def _from_broker(known: ConfigKey, broker: BrokerConfig) -> Any:
    """The broker's value for a topic key: the first stand-in that is set, in our unit."""
    for synonym in known.synonyms:
        value = getattr(broker, synonym.name.replace(".", "_"))
        if value is not None:
            # -1 means "no limit" in every unit.
            return value * synonym.factor if synonym.factor != 1 and value >= 0 else value
    return known.default
