"""Roles of a node, its quorum and its replicas: what a node on its own has to say about them.

This version runs a broker and its controller in one process, as a cluster of one. Configurations
that are written for Kafka name roles, voters and timeouts all the same: a value that says what this
node does anyway is accepted, every other is refused with the reason. None is silently ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.config_keys import ConfigType, format_value, key
from headrace.core.errors import InvalidConfig
from headrace.core.listeners import ListenerConfig, parse_address

ROLES = ("broker", "controller")
_ALONE = "this version runs every node as a cluster of its own"


class Only(NamedTuple):
    """The values that mean what happens anyway, whose text is the first one's, and why no other."""

    values: tuple[object, ...]
    reason: str

    def problem(self, value: Any) -> str | None:
        return None if value in self.values else f"{self.reason}: {self} is accepted"

    def __str__(self) -> str:
        return f"only {format_value(self.values[0]) or 'an empty value'}"


_ROLES = Only((ROLES, ROLES[::-1]), f"{_ALONE}, broker and controller in one process")
_NO_LISTENER = Only(((),), f"{_ALONE}, whose controller has no listener")
_NO_HEARTBEATS = f"{_ALONE}, where no broker sends heartbeats"
_NO_SESSIONS = f"{_ALONE}, where no broker has a session that could end"
_NOT_FETCHED = f"{_ALONE}, where no replica is fetched from another node"


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterKeys:
    """What a cluster would be configured by; the rest is for `check_cluster_keys`."""

    process_roles: tuple[str, ...] = key(
        ConfigType.LIST,
        ROLES,
        _ROLES,
        doc="What this process does: it is broker and controller. Kafka has no default here.",
    )
    controller_quorum_voters: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        doc="Voters of the metadata quorum, ID@HOST:PORT. This node is the only one: empty, or "
        "itself by its node.id.",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        doc="Where controllers are found, HOST:PORT. This node needs none but itself: empty, or "
        "the address of one of its own listeners.",
    )
    controller_listener_names: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        _NO_LISTENER,
        doc="Listeners for controllers. There is none: the controller of a node on its own is "
        "asked through its broker.",
    )
    inter_broker_listener_name: str | None = key(
        ConfigType.STRING,
        None,
        doc="Listener for other brokers. There are none; a name must be one of listeners.",
    )
    broker_heartbeat_interval_ms: int = key(
        ConfigType.INT,
        2_000,
        Only((2_000,), _NO_HEARTBEATS),
        doc="How often a broker tells its controller that it lives.",
    )
    broker_session_timeout_ms: int = key(
        ConfigType.INT,
        9_000,
        Only((9_000,), _NO_SESSIONS),
        doc="How long a broker may be silent before it is fenced.",
    )
    num_replica_fetchers: int = key(
        ConfigType.INT,
        1,
        Only((1,), _NOT_FETCHED),
        doc="Fetchers for each leader that is followed.",
    )
    replica_lag_time_max_ms: int = key(
        ConfigType.LONG,
        30_000,
        Only((30_000,), _NOT_FETCHED),
        doc="How long a follower may be behind and still count as in sync.",
    )
    replica_fetch_min_bytes: int = key(
        ConfigType.INT, 1, Only((1,), _NOT_FETCHED), doc="Least a follower waits for in one fetch."
    )
    replica_fetch_max_bytes: int = key(
        ConfigType.INT,
        1_048_576,
        Only((1_048_576,), _NOT_FETCHED),
        doc="Most a follower fetches of one partition at a time.",
    )
    replica_fetch_response_max_bytes: int = key(
        ConfigType.INT,
        10_485_760,
        Only((10_485_760,), _NOT_FETCHED),
        doc="Most a follower fetches at a time.",
    )
    replica_fetch_wait_max_ms: int = key(
        ConfigType.INT,
        500,
        Only((500,), _NOT_FETCHED),
        doc="How long a fetch of a follower waits for records.",
    )


def check_cluster_keys(
    keys: ClusterKeys, node_id: int, listeners: Sequence[ListenerConfig]
) -> None:
    """Refuse a quorum of others, and a listener for brokers that does not exist."""
    for voter in keys.controller_quorum_voters:
        number, _, address = voter.partition("@")
        parse_address("controller.quorum.voters", address)
        if number != str(node_id):
            raise InvalidConfig(
                f"controller.quorum.voters: {voter} is another node and {_ALONE}: only "
                f"{node_id}@HOST:PORT, or nothing, is accepted"
            )
    if len(keys.controller_quorum_voters) > 1:
        raise InvalidConfig("controller.quorum.voters: this node can vote only once")
    own = {
        (host, port)
        for each in listeners
        for host in (each.host, each.advertised_host)
        for port in (each.port, each.advertised_port)
    }
    for server in keys.controller_quorum_bootstrap_servers:
        if parse_address("controller.quorum.bootstrap.servers", server) not in own:
            raise InvalidConfig(
                f"controller.quorum.bootstrap.servers: {server} is no listener of this node and "
                f"{_ALONE}: leave it empty"
            )
    name = keys.inter_broker_listener_name
    if name and name.upper() not in {each.name for each in listeners}:
        raise InvalidConfig(f"inter.broker.listener.name: no listener is named {name}")
