"""The configuration of one broker: every key it knows, and the layers a value comes from.

    dynamic, this broker  >  dynamic, all brokers  >  static (file, environment, flags)  >  default

A `BrokerConfig` is a value: a changed dynamic config gives a new one (`with_dynamic`). Keys
carry Kafka's names and defaults where Kafka has the key; where a default differs, the text
of the key says so. Topic keys fall back on these, see `topic_configs`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from headrace.core.config_keys import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    Update,
    drop_invalid,
    format_value,
    keys_of,
    suggestion,
)
from headrace.core.errors import ApiError, ErrorCode, InvalidConfig
from headrace.core.keys.cluster import ClusterKeys, check_cluster_keys
from headrace.core.keys.groups import GroupKeys
from headrace.core.keys.http import HttpKeys
from headrace.core.keys.logging import LoggingKeys
from headrace.core.keys.records import RecordKeys
from headrace.core.keys.server import ServerKeys
from headrace.core.keys.storage import StorageKeys
from headrace.core.keys.text import TextKeys
from headrace.core.listeners import ListenerConfig, parse_listeners

logger = logging.getLogger(__name__)

RENAMED_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "http.body.bytes.max": "http.max.body.bytes",
        "http.connections.max": "http.max.connections",
        "http.streams.max": "http.max.streams",
        "http.consumer.instances.max": "http.max.consumer.instances",
        "text.connections.max": "text.max.connections",
        "text.line.bytes.max": "text.max.line.bytes",
        "text.payload.bytes.max": "text.max.payload.bytes",
    }
)
"""Keys by their old names, which are accepted for one release wherever a broker is configured."""

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=False)
class BrokerConfig(
    LoggingKeys,
    TextKeys,
    HttpKeys,
    GroupKeys,
    StorageKeys,
    RecordKeys,
    ClusterKeys,
    ServerKeys,
):
    """Typed values of all broker keys; `from_static` and `with_dynamic` build it from text.

    The keys themselves are declared in `core/keys/`.
    """

    static: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_static(cls, values: Mapping[str, str]) -> "BrokerConfig":
        """Parse and check; an unknown key is refused with the nearest known one as a hint."""
        config = _build(_by_new_names(values), _NO_CONFIGS, _NO_CONFIGS)
        config.check_together()
        return config

    def with_dynamic(
        self, default: Mapping[str, str], own: Mapping[str, str] = _NO_CONFIGS
    ) -> "BrokerConfig":
        """This config under other dynamic layers: for all brokers, and for this one."""
        return _build(
            self.static, drop_invalid(default, BROKER_KEYS), drop_invalid(own, BROKER_KEYS)
        )

    def check_together(self) -> None:
        """Refuse keys that are fine one by one but contradict each other, when they are set."""
        for low, high in _IN_ORDER:
            least, most = (getattr(self, BROKER_KEYS[name].attribute) for name in (low, high))
            if least > most:
                raise InvalidConfig(f"{low} ({least}) must not be greater than {high} ({most})")
        check_cluster_keys(self, self.node_id, self.parsed_listeners())

    @property
    def data_directory(self) -> str:
        return _directories(self)[0]

    def parsed_listeners(self) -> tuple[ListenerConfig, ...]:
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
        names = next((group for group in _SYNONYMS if name in group), (name,))
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
# Between a least and a most that are the wrong way round nothing is left: no group of the classic
# protocol could be joined, no compacted topic created, not even that of all groups' offsets.
_IN_ORDER = (
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
)
_SYNONYMS = (
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


def _by_new_names(values: Mapping[str, str]) -> Mapping[str, str]:
    """The same values with today's name for each key that was given by an old one."""
    old_names = [name for name in values if name in RENAMED_KEYS]
    if not old_names:
        return values
    renamed = dict(values)
    for old in old_names:
        new = RENAMED_KEYS[old]
        if new in values:
            raise InvalidConfig(
                f"{old} and {new} are one key and both are set", hint=f"set {new} alone"
            )
        logger.warning(
            "a configuration key has a new name, the old one goes with the next release: "
            "key=%s new=%s",
            old,
            new,
        )
        renamed[new] = renamed.pop(old)
    return renamed


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
    if len(_directories(config)) != 1:
        # None at all too, as from an empty variable: the default would be somewhere else.
        raise InvalidConfig("log.dirs: exactly one data directory is supported")
    return config


def _directories(config: BrokerConfig) -> tuple[str, ...]:
    return config.log_dir if config.log_dirs is None else config.log_dirs
