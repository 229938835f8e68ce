"""Keys of roles, quorums and replicas: what a node on its own does anyway is accepted, no more."""

import pytest

from headrace.client import Client
from headrace.core.broker_configs import BROKER_KEYS, BrokerConfig
from headrace.core.config_keys import format_value, keys_of
from headrace.core.errors import InvalidConfig
from headrace.core.keys.cluster import ClusterKeys
from headrace.testing import Broker
from tests.support.config_effects import effect_of

KEYS = tuple(keys_of(ClusterKeys))
ALONE = {
    "process.roles": "controller,broker",
    "controller.quorum.voters": "0@127.0.0.1:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "30000",
}
REFUSED = {
    "process.roles": ("broker", "broker and controller in one process"),
    "controller.quorum.voters": ("1@a:9093,2@b:9093,3@c:9093", "another node"),
    "controller.quorum.bootstrap.servers": ("elsewhere:9093", "no listener of this node"),
    "controller.listener.names": ("CONTROLLER", "has no listener"),
    "inter.broker.listener.name": ("INTERNAL", "no listener is named INTERNAL"),
    "broker.heartbeat.interval.ms": ("500", "no broker sends heartbeats"),
    "broker.session.timeout.ms": ("3000", "no broker has a session"),
    "num.replica.fetchers": ("4", "no replica is fetched"),
    "replica.lag.time.max.ms": ("10000", "no replica is fetched"),
    "replica.fetch.min.bytes": ("1000", "no replica is fetched"),
    "replica.fetch.max.bytes": ("1000", "no replica is fetched"),
    "replica.fetch.response.max.bytes": ("1000", "no replica is fetched"),
    "replica.fetch.wait.max.ms": ("100", "no replica is fetched"),
}


@effect_of(*KEYS)
@pytest.mark.parametrize("name", KEYS)
def test_what_this_version_cannot_do_is_refused_in_words(name: str) -> None:
    value, why = REFUSED[name]
    with pytest.raises(InvalidConfig, match=why) as refused:
        BrokerConfig.from_static({name: value})
    assert name in str(refused.value)
    default = format_value(BROKER_KEYS[name].default)
    BrokerConfig.from_static({name: default or ""} if default is not None else {})


def test_a_voter_that_is_this_node_may_be_named_once() -> None:
    with pytest.raises(InvalidConfig, match="only once"):
        BrokerConfig.from_static({"controller.quorum.voters": "0@a:1,0@b:1"})
    with pytest.raises(InvalidConfig, match="expected HOST:PORT"):
        BrokerConfig.from_static({"controller.quorum.voters": "0@nowhere"})


def test_a_node_may_be_sent_to_itself() -> None:
    own = {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": "PLAINTEXT://broker.example:19092",
    }
    for server in ("127.0.0.1:9092", "broker.example:19092"):
        BrokerConfig.from_static({**own, "controller.quorum.bootstrap.servers": server})


def test_a_node_that_is_told_what_it_does_anyway_serves() -> None:
    with Broker(settings=ALONE) as broker, Client(broker.bootstrap_servers) as client:
        assert [node.node_id for node in client.admin.describe_cluster().brokers] == [0]
