"""The configuration of one group: what may differ from the broker's keys for groups.

Set with AlterConfigs on a resource of type group, which need not exist: a group finds its
settings when it is founded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_keys import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Range,
    format_value,
    key,
    keys_of,
)
from headrace.core.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Typed values of one group's keys."""

    consumer_session_timeout_ms: int = key(
        ConfigType.INT,
        45_000,
        Range(1),
        synonyms=["group.consumer.session.timeout.ms"],
        doc="How long a member of this consumer group may be silent before it is removed.",
    )
    consumer_heartbeat_interval_ms: int = key(
        ConfigType.INT,
        5_000,
        Range(1),
        synonyms=["group.consumer.heartbeat.interval.ms"],
        doc="How often members of this consumer group are asked to heartbeat once it is stable.",
    )


_SESSION = "consumer.session.timeout.ms"
_HEARTBEAT = "consumer.heartbeat.interval.ms"

GROUP_KEYS: Mapping[str, ConfigKey] = MappingProxyType(keys_of(GroupConfig))


def validate(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse unknown keys, values that are none, and those beyond the broker's limits."""
    for name, text in overrides.items():
        known = GROUP_KEYS.get(name)
        if known is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        low, high = _limits(name, broker)
        value: int = known.parse(text)
        kind = name.removeprefix("consumer.")
        if value < low:
            raise InvalidConfig(
                f"{name} must be greater than or equal to group.consumer.min.{kind}"
            )
        if value > high:
            raise InvalidConfig(f"{name} must be less than or equal to group.consumer.max.{kind}")
    _check_together(overrides, broker)


def _limits(name: str, broker: BrokerConfig) -> tuple[int, int]:
    if name == _SESSION:
        return (
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        )
    return (
        broker.group_consumer_min_heartbeat_interval_ms,
        broker.group_consumer_max_heartbeat_interval_ms,
    )


def describe(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Every key as DescribeConfigs answers it for a group with these overrides."""
    entries = []
    for known in GROUP_KEYS.values():
        stand_in = known.synonyms[0].name
        synonyms = broker.synonyms_of(stand_in)
        if known.name in overrides:
            value = format_value(known.parse(overrides[known.name]))
            own = ConfigSynonym(known.name, value, ConfigSource.GROUP_CONFIG)
            entries.append(
                ConfigEntry(known, value, ConfigSource.GROUP_CONFIG, False, (own, *synonyms))
            )
        else:
            value = format_value(getattr(broker, stand_in.replace(".", "_")))
            # Kafka calls whatever the group itself does not set a default.
            entries.append(ConfigEntry(known, value, ConfigSource.DEFAULT_CONFIG, False, synonyms))
    return entries


def _check_together(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    session_ms = int(overrides.get(_SESSION, broker.group_consumer_session_timeout_ms))
    interval_ms = int(overrides.get(_HEARTBEAT, broker.group_consumer_heartbeat_interval_ms))
    if session_ms <= interval_ms:
        raise InvalidConfig(f"{_SESSION} must be greater than {_HEARTBEAT}")
