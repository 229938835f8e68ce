"""Broker configs: layers, dynamic changes and listeners."""

import pytest

from headrace.core.broker_configs import (
    BROKER_KEYS,
    RENAMED_KEYS,
    BrokerConfig,
    validate_dynamic,
)
from headrace.core.config_keys import ConfigEntry, ConfigSource
from headrace.core.errors import ApiError, ErrorCode, InvalidConfig
from headrace.core.listeners import ListenerConfig


def entry(config: BrokerConfig, name: str) -> ConfigEntry:
    return next(each for each in config.describe() if each.name == name)


def test_every_key_can_be_written_and_read_back() -> None:
    for known in BROKER_KEYS.values():
        assert known.doc
        if known.default is not None and known.name not in ("log.dirs", "listeners"):
            shown = entry(BrokerConfig(), known.name).value
            assert shown is not None
            assert known.parse(shown) == known.default


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidConfig, match=r"log\.retntion\.ms \(did you mean log\.retention\.ms"):
        BrokerConfig.from_static({"log.retntion.ms": "5"})


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_a_key_is_known_by_its_old_name_with_a_warning(
    old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig.from_static({old: "77"})
    assert getattr(config, BROKER_KEYS[new].attribute) == 77
    assert config.static == {new: "77"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"key={old} new={new}" in caplog.text
    with pytest.raises(InvalidConfig, match=f"{old} and {new} are one key"):
        BrokerConfig.from_static({old: "77", new: "77"})


def test_keys_by_their_names_of_today_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    BrokerConfig.from_static(dict.fromkeys(RENAMED_KEYS.values(), "77"))
    assert not caplog.records


def test_the_strongest_layer_is_the_source() -> None:
    config = BrokerConfig.from_static({"message.max.bytes": "10"})
    assert entry(config, "message.max.bytes").source is ConfigSource.STATIC_BROKER_CONFIG
    changed = config.with_dynamic({"message.max.bytes": "20"}, {"message.max.bytes": "30"})
    assert changed.message_max_bytes == 30
    assert entry(changed, "message.max.bytes").source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert config.message_max_bytes == 10
    assert changed.with_dynamic({}).message_max_bytes == 10


def test_a_stored_value_that_is_no_longer_allowed_is_left_out() -> None:
    config = BrokerConfig.from_static({"log.cleaner.backoff.ms": "7"})
    stored = {"log.cleaner.backoff.ms": "-1", "no.such.key": "1", "message.max.bytes": "20"}
    for changed in (config.with_dynamic(stored), config.with_dynamic({}, stored)):
        assert (changed.log_cleaner_backoff_ms, changed.message_max_bytes) == (7, 20)
        found = entry(changed, "log.cleaner.backoff.ms")
        assert found.source is ConfigSource.STATIC_BROKER_CONFIG


@pytest.mark.parametrize("value", ["-1", "0", "1048575"])
def test_the_map_of_keys_is_given_memory_to_work_with(value: str) -> None:
    """With a negative share compaction kept no record at all."""
    with pytest.raises(InvalidConfig, match="must be at least 1048576"):
        BrokerConfig.from_static({"log.cleaner.dedupe.buffer.size": value})
    with pytest.raises(ApiError, match="must be at least 1048576"):
        validate_dynamic({"log.cleaner.dedupe.buffer.size": value}, for_all_brokers=True)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ],
)
def test_limits_that_leave_nothing_between_them_are_refused(low: str, high: str) -> None:
    with pytest.raises(InvalidConfig, match="must not be greater than"):
        BrokerConfig.from_static({low: "11", high: "10"})
    BrokerConfig.from_static({low: "10", high: "10"})


def test_what_contradicts_the_stored_configs_keeps_no_broker_from_starting() -> None:
    config = BrokerConfig.from_static({"log.cleaner.min.compaction.lag.ms": "11"})
    changed = config.with_dynamic({"log.cleaner.max.compaction.lag.ms": "10"})
    assert changed.log_cleaner_max_compaction_lag_ms == 10
    with pytest.raises(InvalidConfig, match="must not be greater than"):
        changed.check_together()


@pytest.mark.parametrize("values", [{"log.dirs": ""}, {"log.dir": ""}, {"log.dirs": "a,b"}])
def test_there_is_one_data_directory_and_no_other_than_the_one_named(
    values: dict[str, str],
) -> None:
    """An empty one is a variable that was not set: data would go to where nobody looks."""
    with pytest.raises(InvalidConfig, match="exactly one data directory"):
        BrokerConfig.from_static(values)


def test_a_key_with_null_as_default_is_shown_as_null() -> None:
    found = entry(BrokerConfig(), "log.retention.ms")
    assert (found.value, found.source, found.synonyms) == (None, ConfigSource.DEFAULT_CONFIG, ())


def test_only_what_may_change_at_run_time_is_not_read_only() -> None:
    assert entry(BrokerConfig(), "node.id").read_only
    assert not entry(BrokerConfig(), "log.retention.ms").read_only


def test_what_is_set_for_all_brokers_is_listed_alone() -> None:
    config = BrokerConfig().with_dynamic({"log.cleanup.policy": "compact"})
    (found,) = config.describe_dynamic_default()
    assert (found.name, found.value) == ("log.cleanup.policy", "compact")
    assert found.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("node.id", "5", "Cannot update these configs dynamically: [node.id]"),
        (
            "log.segment.bytes",
            "8",
            "Invalid value 8 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
    ],
)
def test_a_dynamic_change_is_refused_with_kafkas_code_and_words(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        validate_dynamic({name: value}, for_all_brokers=True)
    assert (refused.value.code, str(refused.value)) == (ErrorCode.INVALID_REQUEST, message)


def test_a_dynamic_change_of_a_key_that_does_nothing_here_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"foo\.bar"):
        validate_dynamic({"foo.bar": "1"}, for_all_brokers=False)


def test_the_data_directory_is_log_dirs_before_log_dir() -> None:
    assert BrokerConfig.from_static({"log.dir": "a"}).data_directory == "a"
    assert BrokerConfig.from_static({"log.dir": "a", "log.dirs": "b"}).data_directory == "b"
    with pytest.raises(InvalidConfig, match="one data directory"):
        BrokerConfig.from_static({"log.dirs": "a,b"})


def test_listeners_are_joined_with_their_protocol_and_advertised_address() -> None:
    config = BrokerConfig.from_static(
        {
            "listeners": "INSIDE://:9092,OUTSIDE://[::1]:0",
            "advertised.listeners": "OUTSIDE://broker.example:19092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    assert config.parsed_listeners() == (
        ListenerConfig("INSIDE", "PLAINTEXT", "", 9092),
        ListenerConfig("OUTSIDE", "PLAINTEXT", "::1", 0, "broker.example", 19092),
    )
    assert [each.is_wildcard for each in config.parsed_listeners()] == [True, False]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"listeners": "127.0.0.1:9092"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:70000"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "may be used once"),
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "INSIDE://h:1"}, "no entry in listener.security.protocol.map"),
        ({"listeners": "SSL://h:1"}, "SSL, which is not served"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address a client can connect to"),
        ({"advertised.listeners": "OTHER://h:1"}, "no listener is named OTHER"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "expected NAME:PROTOCOL"),
    ],
)
def test_listeners_that_cannot_work_are_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        BrokerConfig.from_static(keys)
