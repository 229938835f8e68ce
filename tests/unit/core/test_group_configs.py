"""Configs of single groups: layers over the broker's, bounds, words of refusals."""

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_keys import ConfigSource
from headrace.core.errors import InvalidConfig
from headrace.core.group_configs import describe, validate

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def broker(**values: str) -> BrokerConfig:
    return BrokerConfig.from_static({name.replace("_", "."): v for name, v in values.items()})


def test_a_group_without_configs_shows_the_brokers_values_as_defaults() -> None:
    entries = {entry.name: entry for entry in describe({}, broker())}
    assert {name: entry.value for name, entry in entries.items()} == {
        SESSION: "45000",
        HEARTBEAT: "5000",
    }
    assert all(entry.is_default for entry in entries.values())
    (synonym,) = entries[SESSION].synonyms
    assert synonym.name == "group.consumer.session.timeout.ms"


def test_what_a_group_sets_stands_before_what_the_broker_has() -> None:
    entries = {entry.name: entry for entry in describe({SESSION: "50000"}, broker())}
    entry = entries[SESSION]
    assert (entry.value, entry.source) == ("50000", ConfigSource.GROUP_CONFIG)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        (SESSION, "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("nope", "1", "Unknown group config name: nope"),
        (SESSION, "x", f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        (SESSION, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (
            HEARTBEAT,
            "4999",
            f"{HEARTBEAT} must be greater than or equal to "
            "group.consumer.min.heartbeat.interval.ms",
        ),
        (
            SESSION,
            "60001",
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
    ],
)
def test_a_bad_value_is_refused_in_kafkas_words(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate({name: value}, broker())
    assert caught.value.message == message


def test_a_session_must_outlast_the_interval_between_heartbeats() -> None:
    wide = broker(
        group_consumer_min_session_timeout_ms="1",
        group_consumer_max_session_timeout_ms="60000",
    )
    with pytest.raises(InvalidConfig, match="must be greater than"):
        validate({SESSION: "5000"}, wide)
    validate({SESSION: "5001"}, wide)


@pytest.mark.parametrize(
    "values",
    [
        {"group_consumer_session_timeout_ms": "44999"},
        {"group_consumer_heartbeat_interval_ms": "15001"},
        {"group_consumer_assignors": ""},
        {"group_consumer_assignors": "uniform,sticky"},
        {"group_consumer_migration_policy": "sideways"},
        {
            "group_consumer_min_session_timeout_ms": "1",
            "group_consumer_session_timeout_ms": "5000",
        },
    ],
)
def test_broker_keys_of_consumer_groups_must_make_sense_together(values: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        broker(**values)
