"""Who a broker is, its topics, and its connections."""

from dataclasses import dataclass

from headrace.core.config_keys import (
    INT_MAX,
    ConfigType,
    NotZero,
    Range,
    Update,
    key,
)

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG = ConfigType.INT, ConfigType.LONG
_CLUSTER_WIDE = Update.CLUSTER_WIDE


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerKeys:
    """Identity, listeners, defaults of topics, limits of connections."""

    # Who and where.
    node_id: int = key(
        _INT, 0, Range(0), doc="Number of this broker in its cluster. Kafka has no default here."
    )
    broker_rack: str | None = key(
        _STRING, None, doc="Rack of this broker, sent to clients in Metadata."
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
        doc="Addresses that are sent to clients, by listener name. A listener that is not named "
        "here advertises the host it is bound to, or, when bound to every interface, the address "
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
        doc="In-sync replicas without which a write with acks=all is refused; counted up to the"
        " number of replicas that a topic has.",
        crash="With 1, an acknowledged record may live on one disk only.",
    )
    unclean_leader_election_enable: bool = key(
        _BOOLEAN,
        False,
        update=_CLUSTER_WIDE,
        doc="Let a replica that is not in sync become leader when no other is left. Stored and "
        "shown, without effect: a partition has one replica, so there is nobody to elect.",
    )

    # Connections and requests.
    socket_request_max_bytes: int = key(
        _INT, 104_857_600, Range(1), doc="Largest request; a larger one closes its connection."
    )
    socket_listen_backlog_size: int = key(
        _INT, 50, Range(1), doc="Connections that may wait to be accepted."
    )
    connections_max_idle_ms: int = key(
        _LONG,
        600_000,
        NotZero(),
        doc="Close a connection that was silent for this long; negative: never.",
    )
    max_connections: int = key(
        _INT,
        INT_MAX,
        Range(0),
        update=_CLUSTER_WIDE,
        doc="Connections open at one time. A lower limit holds for new connections; those that "
        "are open stay.",
    )
    max_connections_per_ip: int = key(
        _INT,
        INT_MAX,
        Range(0),
        update=_CLUSTER_WIDE,
        doc="Connections open from one address; likewise for new ones.",
    )
    fetch_max_bytes: int = key(
        _INT, 57_671_680, Range(1024), doc="Most record bytes in one fetch answer."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        _INT,
        1000,
        Range(0),
        doc="Fetch sessions kept, with at most 250000 partitions in all; beyond that, idle ones "
        "are evicted or clients go on without.",
    )
    max_request_partition_size_limit: int = key(
        _INT, 2000, Range(1), doc="Most partitions in one DescribeTopicPartitions answer."
    )
