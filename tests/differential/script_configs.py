"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import time
from collections.abc import Iterable

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages import alter_configs as whole
from headrace.protocol.messages import incremental_alter_configs as step
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.differential.peer import Peer
from tests.differential.scripts import script, versions

_UNKNOWN, _TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 0, 2, 4, 8, 16, 32
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def _describe(
    kind: int, name: str, keys: list[str] | None = None, synonyms: bool = False, docs: bool = False
) -> DescribeConfigsRequest:
    one = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(
        resources=[one], include_synonyms=synonyms, include_documentation=docs
    )


def _wait_for(peer: Peer, topic: str, key: str, value: str | None) -> None:
    """Wait until a config change can be seen: brokers apply it a moment after they answer."""
    deadline = time.monotonic() + 10
    while True:
        answer = peer.quietly(_describe(_TOPIC, topic, [key]), 4, DescribeConfigsResponse)
        entry = answer.results[0].configs[0]
        if (entry.value if entry.config_source == 1 else None) == value:
            return
        assert time.monotonic() < deadline, f"{topic} keeps {key}={entry.value}"
        time.sleep(0.01)


@script
def describe_configs_in_every_version(peer: Peer) -> None:
    peer.create("described", retention_ms="60000", cleanup_policy="compact,delete")
    some = ["retention.ms", "cleanup.policy", "segment.bytes", "no.such.key"]
    for version in versions(ApiKey.DESCRIBE_CONFIGS):
        for label, request in (
            ("some keys", _describe(_TOPIC, "described", some)),
            ("some keys with synonyms", _describe(_TOPIC, "described", some, synonyms=True)),
            ("all keys", _describe(_TOPIC, "described")),
            ("all keys with synonyms", _describe(_TOPIC, "described", synonyms=True)),
            ("no keys", _describe(_TOPIC, "described", [])),
            ("unknown topic", _describe(_TOPIC, "no-such-topic")),
            ("empty topic name", _describe(_TOPIC, "")),
            ("bad topic name", _describe(_TOPIC, "a topic")),
            ("a key of the broker", _describe(_BROKER, "0", ["log.retention.ms", "node.id"])),
            ("another broker", _describe(_BROKER, "7", ["node.id"])),
            ("a broker that is no number", _describe(_BROKER, "one", ["node.id"])),
            ("default broker", _describe(_BROKER, "", ["log.retention.ms"])),
            ("unknown kind", _describe(_UNKNOWN, "x")),
            ("no such kind", _describe(99, "x")),
        ):
            peer.ask(request, version, label)
        empty = DescribeConfigsRequest(resources=[], include_synonyms=False)
        peer.ask(empty, version, "no resources")


def _alter(
    kind: int, name: str, configs: Iterable[tuple[str, str | None]], checked: bool = False
) -> whole.AlterConfigsRequest:
    entries = [whole.AlterableConfig(name=key, value=value) for key, value in configs]
    one = whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return whole.AlterConfigsRequest(resources=[one], validate_only=checked)


@script
def alter_configs_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.ALTER_CONFIGS):
        topic = f"altered-{version}"
        peer.create(topic, retention_ms="1000")
        peer.ask(_alter(_TOPIC, topic, [("segment.ms", "9000")], checked=True), version, "checked")
        peer.ask(_alter(_TOPIC, topic, [("segment.ms", "9000")]), version, "one set")
        _wait_for(peer, topic, "segment.ms", "9000")
        keys = ["segment.ms", "retention.ms"]
        peer.ask(_describe(_TOPIC, topic, keys), 4, f"v{version}: the other is gone")
        peer.ask(_alter(_TOPIC, topic, []), version, "all taken away")
        _wait_for(peer, topic, "segment.ms", None)
        for label, request in (
            ("unknown key", _alter(_TOPIC, topic, [("no.such.key", "1")])),
            ("bad value", _alter(_TOPIC, topic, [("segment.ms", "soon")])),
            ("value out of range", _alter(_TOPIC, topic, [("segment.ms", "0")])),
            ("null value", _alter(_TOPIC, topic, [("segment.ms", None)])),
            ("a key twice", _alter(_TOPIC, topic, [("segment.ms", "1"), ("segment.ms", "2")])),
            ("unknown topic", _alter(_TOPIC, "no-such-topic", [("segment.ms", "9")])),
            ("empty name", _alter(_TOPIC, "", [("segment.ms", "9")])),
            ("no such kind", _alter(99, "x", [("segment.ms", "9")])),
            ("another broker", _alter(_BROKER, "7", [("log.retention.ms", "9")])),
        ):
            peer.ask(request, version, label)
        nothing = whole.AlterConfigsRequest(resources=[], validate_only=False)
        peer.ask(nothing, version, "no resources")


def _step(
    kind: int, name: str, changes: Iterable[tuple[str, int, str | None]], checked: bool = False
) -> step.IncrementalAlterConfigsRequest:
    entries = [
        step.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    one = step.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return step.IncrementalAlterConfigsRequest(resources=[one], validate_only=checked)


@script
def incremental_alter_configs_in_every_version(peer: Peer) -> None:
    policy = "cleanup.policy"
    for version in versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        topic = f"stepped-{version}"
        peer.create(topic, retention_ms="1000")
        good: list[tuple[str, list[tuple[str, int, str | None]], str | None]] = [
            ("set", [(policy, _SET, "compact")], "compact"),
            ("append", [(policy, _APPEND, "delete")], "compact,delete"),
            ("append what is there", [(policy, _APPEND, "delete")], "compact,delete"),
            ("subtract", [(policy, _SUBTRACT, "compact")], "delete"),
            ("subtract what is not there", [(policy, _SUBTRACT, "compact")], "delete"),
            ("delete", [(policy, _DELETE, None)], None),
            ("delete what is not set", [(policy, _DELETE, None)], None),
        ]
        for label, changes, expected in good:
            peer.ask(_step(_TOPIC, topic, changes), version, label)
            _wait_for(peer, topic, policy, expected)
        kept = _describe(_TOPIC, topic, ["retention.ms", policy])
        peer.ask(kept, 4, f"v{version}: the rest is kept")
        checked = _step(_TOPIC, topic, [("segment.ms", _SET, "5")], checked=True)
        peer.ask(checked, version, "only checked")
        bad: list[tuple[str, int, str, list[tuple[str, int, str | None]]]] = [
            ("unknown key", _TOPIC, topic, [("no.such.key", _SET, "1")]),
            ("delete an unknown key", _TOPIC, topic, [("no.such.key", _DELETE, None)]),
            ("bad value", _TOPIC, topic, [("segment.ms", _SET, "soon")]),
            ("out of range", _TOPIC, topic, [("segment.bytes", _SET, "2")]),
            ("bad member of a list", _TOPIC, topic, [(policy, _SET, "burn")]),
            ("set to null", _TOPIC, topic, [("segment.ms", _SET, None)]),
            ("append to a number", _TOPIC, topic, [("segment.ms", _APPEND, "5")]),
            ("subtract from a number", _TOPIC, topic, [("segment.ms", _SUBTRACT, "5")]),
            ("no such operation", _TOPIC, topic, [("segment.ms", 9, "5")]),
            ("a key twice", _TOPIC, topic, [("segment.ms", _SET, "5"), ("segment.ms", _SET, "6")]),
            ("unknown topic", _TOPIC, "no-such-topic", [("segment.ms", _SET, "5")]),
            ("bad topic name", _TOPIC, "a topic", [("segment.ms", _SET, "5")]),
            ("no such kind", 99, "x", [("segment.ms", _SET, "5")]),
            ("another broker", _BROKER, "7", [("log.retention.ms", _SET, "5")]),
            ("read-only key of the broker", _BROKER, "0", [("node.id", _SET, "5")]),
        ]
        for label, kind, name, changes in bad:
            peer.ask(_step(kind, name, changes), version, label)
        nothing = step.IncrementalAlterConfigsRequest(resources=[], validate_only=False)
        peer.ask(nothing, version, "no resources")


@script
def list_config_resources(peer: Peer) -> None:
    peer.ask(ListConfigResourcesRequest(), 0, "before there is a topic")
    peer.create("listed")
    peer.ask(ListConfigResourcesRequest(), 0, "with a topic")
    peer.delete("listed")
    peer.ask(ListConfigResourcesRequest(), 0, "after the topic has gone")
    peer.create("listed")
    for label, kinds in (
        ("client metrics", [_CLIENT_METRICS]),
        ("brokers", [_BROKER]),
        ("broker loggers", [_BROKER_LOGGER]),
        ("groups", [_GROUP]),
        ("unknown kind", [_UNKNOWN]),
        ("no such kind", [99]),
        ("brokers and something unknown", [_BROKER, 99]),
    ):
        peer.ask(ListConfigResourcesRequest(resource_types=kinds), 1, label)
