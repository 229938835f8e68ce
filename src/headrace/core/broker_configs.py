"""The configuration of one broker: every key it knows, and the layers a value comes from.

    dynamic, this broker  >  dynamic, all brokers  >  static (file, environment, flags)  >  default

A `BrokerConfig` is a value: a changed dynamic config gives a new one (`with_dynamic`). Keys
carry Kafka's names and defaults where Kafka has the key; where a default differs, the text
of the key says so. Topic keys fall back on these, see `topic_configs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from headrace.core.config_keys import (
    INT_MAX,
    LONG_MAX,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    LevelOrDefault,
    OneOf,
    Range,
    Update,
    format_value,
    key,
    keys_of,
    suggestion,
)
from headrace.core.errors import ApiError, ErrorCode, InvalidConfig
from headrace.core.listeners import Listener, parse_listeners

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_CLUSTER_WIDE = Update.CLUSTER_WIDE
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerConfig:
    """Typed values of all broker keys; `from_static` and `with_dynamic` build it from text."""

    # Who and where.
    node_id: int = key(
        _INT, 0, Range(0), doc="Number of this broker in its cluster. Kafka has no default here."
    )
    broker_rack: str | None = key(
        _STRING, None, doc="Rack of this broker, told to clients in Metadata."
    )
    listeners: tuple[str, ...] = key(
        _LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        doc="Addresses to listen on, NAME://HOST:PORT. An empty host means every interface, port "
        "0 a free port. Kafka listens on every interface by default; we keep to loopback.",
    )
    advertised_listeners: tuple[str, ...] | None = key(
        _LIST,
        None,
        doc="Addresses that clients are told, by listener name. A listener that is not named here "
        "advertises the host it is bound to, or, when bound to every interface, the address "
        "at which the asking client reached it.",
    )
    listener_security_protocol_map: str = key(
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="Security protocol of each listener name, NAME:PROTOCOL. Only PLAINTEXT is served.",
    )
    log_dirs: tuple[str, ...] | None = key(
        _LIST, None, doc="Data directory; log.dir counts when this is not set. One only."
    )
    log_dir: tuple[str, ...] = key(
        _LIST, ("headrace-data",), doc="Data directory, relative to where the broker is started."
    )

    # Topics.
    num_partitions: int = key(
        _INT, 1, Range(1), doc="Partitions of a topic that is created without a count."
    )
    default_replication_factor: int = key(
        _INT, 1, Range(1), doc="Replicas of a topic that is created without a count."
    )
    auto_create_topics_enable: bool = key(
        _BOOLEAN, True, doc="Create a topic when a client asks for its metadata and permits it."
    )
    delete_topic_enable: bool = key(
        _BOOLEAN, True, doc="Permit the deletion of topics; otherwise it is refused."
    )
    min_insync_replicas: int = key(
        _INT,
        1,
        Range(1),
        update=_CLUSTER_WIDE,
        doc="In-sync replicas without which a write with acks=all is refused.",
        crash="With 1, an acknowledged record may live on one disk only.",
    )
    unclean_leader_election_enable: bool = key(
        _BOOLEAN,
        False,
        update=_CLUSTER_WIDE,
        doc="Let a replica that is not in sync become leader when no other is left.",
        crash="When on, records that the lost in-sync replicas acknowledged may be gone.",
    )

    # Connections and requests.
    socket_request_max_bytes: int = key(
        _INT, 104_857_600, Range(1), doc="Largest request; a larger one closes its connection."
    )
    socket_listen_backlog_size: int = key(
        _INT, 50, Range(1), doc="Connections that may wait to be accepted."
    )
    connections_max_idle_ms: int = key(
        _LONG, 600_000, doc="Close a connection that was silent for this long; negative: never."
    )
    max_connections: int = key(
        _INT, INT_MAX, Range(0), update=_CLUSTER_WIDE, doc="Connections open at one time."
    )
    max_connections_per_ip: int = key(
        _INT, INT_MAX, Range(0), update=_CLUSTER_WIDE, doc="Connections open from one address."
    )
    fetch_max_bytes: int = key(
        _INT, 57_671_680, Range(1024), doc="Most record bytes in one fetch answer."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        _INT, 1000, Range(0), doc="Fetch sessions kept; beyond that, old ones are evicted."
    )
    max_request_partition_size_limit: int = key(
        _INT, 2000, Range(1), doc="Most partitions in one DescribeTopicPartitions answer."
    )

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
        doc="Forget an idempotent producer that was silent for this long.",
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
        doc="Flush a partition that has unflushed records older than this; "
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
        "only what came later. Kafka: 60000.",
        crash="Nothing; it bounds the time of recovery, not what is kept.",
    )

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

    static: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_static(cls, values: Mapping[str, str]) -> "BrokerConfig":
        """Parse and check; an unknown key is refused with the nearest known one as a hint."""
        return _build(values, _NO_CONFIGS, _NO_CONFIGS)

    def with_dynamic(
        self, default: Mapping[str, str], own: Mapping[str, str] = _NO_CONFIGS
    ) -> "BrokerConfig":
        """This config under other dynamic layers: for all brokers, and for this one."""
        return _build(self.static, default, own)

    @property
    def data_directory(self) -> str:
        return (self.log_dirs or self.log_dir)[0]

    def parsed_listeners(self) -> tuple[Listener, ...]:
        """The listeners with their security protocols and advertised addresses."""
        return parse_listeners(
            self.listeners, self.advertised_listeners or (), self.listener_security_protocol_map
        )

    def describe(self) -> list[ConfigEntry]:
        """Every key as DescribeConfigs answers it for a broker."""
        entries = []
        for known in BROKER_KEYS.values():
            synonyms = self.synonyms_of(known.name)
            value = format_value(getattr(self, known.attribute))
            source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
            read_only = known.update is Update.READ_ONLY
            entries.append(ConfigEntry(known, value, source, read_only, synonyms))
        return entries

    def describe_dynamic_default(self) -> list[ConfigEntry]:
        """What is set for all brokers, as DescribeConfigs answers it for the broker named ""."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries = []
        for name, text in self.dynamic_default.items():
            value = format_value(BROKER_KEYS[name].parse(text))
            synonyms = (ConfigSynonym(name, value, source),)
            entries.append(ConfigEntry(BROKER_KEYS[name], value, source, False, synonyms))
        return entries

    def synonyms_of(self, name: str) -> tuple[ConfigSynonym, ...]:
        """Where `name` gets its value, strongest first, stand-ins with other units included."""
        names = next((group for group in _STAND_INS if name in group), (name,))
        layers = (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
            (_DEFAULTS, ConfigSource.DEFAULT_CONFIG),
        )
        found = [
            ConfigSynonym(each, layer[each], source)
            for layer, source in layers
            for each in names
            if layer.get(each) is not None
        ]
        # As Kafka does: what stands before the first mention of the name itself is not shown.
        while found and found[0].name != name:
            del found[0]
        return tuple(found)


BROKER_KEYS: Mapping[str, ConfigKey] = MappingProxyType(keys_of(BrokerConfig))

_DEFAULTS: Mapping[str, str | None] = {
    name: format_value(known.default) for name, known in BROKER_KEYS.items()
}
_STAND_INS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)


def validate_dynamic(changes: Mapping[str, str], *, for_all_brokers: bool) -> None:
    """Refuse a change of broker keys at run time, with the code and in the words of Kafka.

    Kafka stores unknown keys for plugins it may have; we have none, so they are refused.
    """
    fixed = [name for name in changes if known_key(name).update is Update.READ_ONLY]
    if fixed:
        _refuse(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    own = [name for name in changes if BROKER_KEYS[name].update is Update.PER_BROKER]
    if own and for_all_brokers:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(own)}]"
        )
    for name, text in changes.items():
        try:
            BROKER_KEYS[name].parse(text)
        except InvalidConfig as error:
            _refuse(error.message)


def _refuse(message: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_REQUEST, message)


def known_key(name: str) -> ConfigKey:
    known = BROKER_KEYS.get(name)
    if known is None:
        hint = suggestion(name, BROKER_KEYS)
        raise InvalidConfig(f"Unknown broker config name: {name}" + (f" ({hint})" if hint else ""))
    return known


def _build(
    static: Mapping[str, str], default: Mapping[str, str], own: Mapping[str, str]
) -> BrokerConfig:
    typed: dict[str, Any] = {}
    for layer in (static, default, own):
        for name, text in layer.items():
            known = known_key(name)
            typed[known.attribute] = known.parse(text)
    config = BrokerConfig(static=static, dynamic_default=default, dynamic=own, **typed)
    config.parsed_listeners()
    if len(config.log_dirs or config.log_dir) != 1:
        raise InvalidConfig("log.dirs: exactly one data directory is supported")
    return config
