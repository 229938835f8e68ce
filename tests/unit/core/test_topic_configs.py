"""Topic configs: limits, the order in which sources win, and what DescribeConfigs shows."""

from collections.abc import Mapping

import pytest

from headrace.core import topic_configs
from headrace.core.broker_configs import BROKER_KEYS, BrokerConfig
from headrace.core.config_keys import ConfigEntry, ConfigSource
from headrace.core.errors import InvalidConfig
from headrace.core.topic_configs import TOPIC_KEYS, TopicConfig


def entry(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> ConfigEntry:
    return next(each for each in topic_configs.describe(overrides, broker) if each.name == name)


def test_a_topic_without_overrides_has_kafkas_defaults() -> None:
    config = TopicConfig.resolve({}, BrokerConfig())
    assert config == TopicConfig()
    assert config.retention_ms == 7 * 24 * 3_600_000
    assert config.max_message_bytes == 1_048_588


def test_sources_win_in_kafkas_order() -> None:
    static = BrokerConfig.from_static({"log.retention.ms": "4"})
    default = static.with_dynamic({"log.retention.ms": "3"})
    own = static.with_dynamic({"log.retention.ms": "3"}, {"log.retention.ms": "2"})
    overrides = {"retention.ms": "1"}
    assert TopicConfig.resolve({}, static).retention_ms == 4
    assert TopicConfig.resolve({}, default).retention_ms == 3
    assert TopicConfig.resolve({}, own).retention_ms == 2
    assert TopicConfig.resolve(overrides, own).retention_ms == 1
    found = entry("retention.ms", overrides, own)
    assert found.source is ConfigSource.TOPIC_CONFIG
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        ("retention.ms", "1", ConfigSource.TOPIC_CONFIG),
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.ms", "4", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]


def test_a_stand_in_with_a_larger_unit_is_converted() -> None:
    hours = BrokerConfig.from_static({"log.retention.hours": "2"})
    minutes = BrokerConfig.from_static({"log.retention.hours": "2", "log.retention.minutes": "3"})
    assert TopicConfig.resolve({}, hours).retention_ms == 2 * 3_600_000
    assert TopicConfig.resolve({}, minutes).retention_ms == 3 * 60_000
    # Seen on Kafka 4.3: the stand-in alone is not named as a synonym.
    assert entry("retention.ms", {}, hours).synonyms == ()
    assert entry("retention.ms", {}, hours).source is ConfigSource.DEFAULT_CONFIG


def test_no_limit_stays_no_limit_in_every_unit() -> None:
    unlimited = BrokerConfig.from_static({"log.retention.hours": "-1"})
    assert TopicConfig.resolve({}, unlimited).retention_ms == -1


def test_every_topic_key_takes_its_default_from_an_existing_broker_key() -> None:
    for known in TOPIC_KEYS.values():
        assert known.internal or known.synonyms, f"{known.name} has no broker key to inherit from"
        strangers = {each.name for each in known.synonyms} - set(BROKER_KEYS)
        assert strangers == set(), f"{known.name} inherits from broker keys that do not exist"
    inherited = TopicConfig.resolve({}, BrokerConfig())
    for known in TOPIC_KEYS.values():
        value = getattr(inherited, known.attribute)
        assert value == known.default, f"{known.name} and its broker key differ in their defaults"


def test_an_unknown_key_is_refused_in_kafkas_words() -> None:
    with pytest.raises(InvalidConfig, match=r"^Unknown topic config name: nope$"):
        topic_configs.validate("nope", "1")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("retention.ms", "-2", "Value must be at least -1"),
        ("segment.bytes", "100", "Value must be at least 1048576"),
        ("cleanup.policy", "remove", "String must be one of: compact, delete"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
        (
            "message.timestamp.type",
            "createtime",
            "String must be one of: CreateTime, LogAppendTime",
        ),
    ],
)
def test_a_value_out_of_limits_is_refused_in_kafkas_words(
    name: str, value: str, problem: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        topic_configs.validate(name, value)
    assert str(refused.value) == f"Invalid value {value} for configuration {name}: {problem}"


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    lags = {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"}
    with pytest.raises(InvalidConfig) as refused:
        topic_configs.validate_together(lags, BrokerConfig())
    assert str(refused.value) == (
        "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)"
    )


def test_the_internal_segment_size_has_no_lower_limit_and_is_shown_only_where_set() -> None:
    overrides = {"internal.segment.bytes": "5000"}
    assert TopicConfig.resolve(overrides, BrokerConfig()).segment_bytes == 5000
    names = {each.name for each in topic_configs.describe({}, BrokerConfig())}
    assert "internal.segment.bytes" not in names
    found = entry("internal.segment.bytes", overrides, BrokerConfig())
    assert (found.value, found.source) == ("5000", ConfigSource.TOPIC_CONFIG)


def test_a_list_is_shown_without_the_blanks_it_was_set_with() -> None:
    found = entry("cleanup.policy", {"cleanup.policy": "compact , delete"}, BrokerConfig())
    assert found.value == "compact,delete"
    config = TopicConfig.resolve({"cleanup.policy": "compact , delete"}, BrokerConfig())
    assert (config.is_compacted, config.is_deleted) == (True, True)
