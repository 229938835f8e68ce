"""Altering configs: both forms, and Kafka's codes and words for what is refused."""

import pytest

from headrace.controller.commands import (
    AlterConfigOp,
    AlterConfigs,
    ConfigAlteration,
    ConfigsToAlter,
    ConfigsToReplace,
    CreateTopics,
    IncrementalAlterConfigs,
    TopicToCreate,
)
from headrace.controller.config_changes import AlterConfigOpType
from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ErrorCode
from headrace.metadata.image import Image
from tests.support.metadata import cluster, machine

MACHINE = machine()
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = AlterConfigOpType


def topic(name: str = "t", **configs: str) -> Image:
    image = cluster(0)
    given = tuple((key.replace("_", "."), value) for key, value in configs.items())
    decision = MACHINE.decide(image, CreateTopics((TopicToCreate(name, 1, 1, configs=given),)))
    assert decision.reply[0].error is ErrorCode.NONE
    return MACHINE.apply(image, decision.records)


def alter(
    image: Image, *operations: AlterConfigOp, type: int = TOPIC, name: str = "t"
) -> tuple[Image, ConfigAlteration]:
    command = IncrementalAlterConfigs((ConfigsToAlter(type, name, operations),))
    decision = MACHINE.decide(image, command)
    return MACHINE.apply(image, decision.records), decision.reply[0]


def replace(
    image: Image, *configs: tuple[str, str | None], type: int = TOPIC, name: str = "t"
) -> tuple[Image, ConfigAlteration]:
    command = AlterConfigs((ConfigsToReplace(type, name, configs),))
    decision = MACHINE.decide(image, command)
    return MACHINE.apply(image, decision.records), decision.reply[0]


def test_only_the_keys_named_change() -> None:
    image = topic(retention_ms="1", segment_ms="2")
    image, answer = alter(
        image,
        AlterConfigOp("retention.ms", SET, "5"),
        AlterConfigOp("segment.ms", DELETE),
        AlterConfigOp("flush.ms", SET, "9"),
    )
    assert answer == ConfigAlteration(TOPIC, "t")
    assert image.topic_configs("t") == {"retention.ms": "5", "flush.ms": "9"}


def test_replacing_drops_the_keys_that_are_left_out() -> None:
    image, answer = replace(topic(retention_ms="1", segment_ms="2"), ("flush.ms", "9"))
    assert answer.error is ErrorCode.NONE
    assert image.topic_configs("t") == {"flush.ms": "9"}
    image, _ = replace(image)
    assert not image.configs


def test_a_list_grows_and_shrinks_by_items_from_its_default() -> None:
    image, _ = alter(topic(), AlterConfigOp("cleanup.policy", APPEND, "compact"))
    assert image.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    unchanged, _ = alter(image, AlterConfigOp("cleanup.policy", APPEND, "compact"))
    assert unchanged.topic_configs("t") == image.topic_configs("t")
    image, _ = alter(image, AlterConfigOp("cleanup.policy", SUBTRACT, "delete"))
    assert image.topic_configs("t") == {"cleanup.policy": "compact"}


def test_what_is_set_already_writes_no_record() -> None:
    image = topic(retention_ms="1")
    operations = (AlterConfigOp("retention.ms", SET, "1"), AlterConfigOp("flush.ms", DELETE))
    command = IncrementalAlterConfigs((ConfigsToAlter(TOPIC, "t", operations),))
    assert not MACHINE.decide(image, command).records


def test_validating_a_change_writes_no_record() -> None:
    change = ConfigsToAlter(TOPIC, "t", (AlterConfigOp("retention.ms", SET, "1"),))
    decision = MACHINE.decide(topic(), IncrementalAlterConfigs((change,), validate_only=True))
    assert decision.reply == (ConfigAlteration(TOPIC, "t"),)
    assert not decision.records


def test_brokers_have_configs_of_their_own_and_for_all() -> None:
    image, _ = alter(cluster(0), AlterConfigOp("log.retention.ms", SET, "1"), type=BROKER, name="0")
    image, _ = alter(image, AlterConfigOp("log.retention.ms", SET, "2"), type=BROKER, name="")
    assert image.broker_configs(0) == {"log.retention.ms": "1"}
    assert image.broker_configs(None) == {"log.retention.ms": "2"}


@pytest.mark.parametrize("name", ["", "0"])
def test_brokers_take_no_configs_that_contradict_each_other(name: str) -> None:
    """With these defaults no compacted topic could be created, that of groups neither."""
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    image, _ = alter(cluster(0), AlterConfigOp(low, SET, "11"), type=BROKER, name="")
    image, answer = alter(image, AlterConfigOp(high, SET, "10"), type=BROKER, name=name)
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert answer.message == f"{low} (11) must not be greater than {high} (10)"
    image, answer = alter(image, AlterConfigOp(high, SET, "11"), type=BROKER, name=name)
    assert answer.error is ErrorCode.NONE


def test_a_topic_is_checked_against_the_broker_configs_in_force() -> None:
    image, answer = alter(
        topic(),
        AlterConfigOp("log.cleaner.max.compaction.lag.ms", SET, "5"),
        type=BROKER,
        name="",
    )
    assert answer.error is ErrorCode.NONE
    _, answer = alter(image, AlterConfigOp("min.compaction.lag.ms", SET, "10"))
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert answer.message == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )


NO_LIST = "Can't APPEND to key retention.ms because its type is not LIST."
BAD_NAME = (
    "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
    "alphanumerics, '.', '_' and '-'"
)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            ConfigsToAlter(TOPIC, "t", (AlterConfigOp("a", SET, "1"), AlterConfigOp("a", DELETE))),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            ConfigsToAlter(TOPIC, "t", (AlterConfigOp("a", SET), AlterConfigOp("b", APPEND, None))),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : a, b",
        ),
        (
            ConfigsToAlter(TOPIC, "t", (AlterConfigOp("retention.ms", APPEND, "1"),)),
            ErrorCode.INVALID_CONFIG,
            NO_LIST,
        ),
        (
            ConfigsToAlter(TOPIC, "t", (AlterConfigOp("foo", SET, "1"),)),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: foo",
        ),
        (
            ConfigsToAlter(TOPIC, "t", (AlterConfigOp("retention.ms", SET, ""),)),
            ErrorCode.INVALID_CONFIG,
            "Invalid value  for configuration retention.ms: Not a number of type LONG",
        ),
        (
            ConfigsToAlter(TOPIC, "nope", (AlterConfigOp("retention.ms", SET, "1"),)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            ConfigsToAlter(TOPIC, "nope", (AlterConfigOp("foo", SET, "1"),)),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: foo",
        ),
        (
            ConfigsToAlter(TOPIC, "", (AlterConfigOp("retention.ms", SET, "1"),)),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            ConfigsToAlter(TOPIC, "a b", (AlterConfigOp("retention.ms", SET, "1"),)),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            BAD_NAME,
        ),
        (
            ConfigsToAlter(77, "t", ()),
            ErrorCode.INVALID_REQUEST,
            "Unknown resource type 77",
        ),
        (
            ConfigsToAlter(BROKER, "x", (AlterConfigOp("log.retention.ms", SET, "1"),)),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            ConfigsToAlter(BROKER, "2", (AlterConfigOp("log.retention.ms", SET, "1"),)),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 0, but received 2",
        ),
        (
            ConfigsToAlter(BROKER, "0", (AlterConfigOp("node.id", SET, "1"),)),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (
            ConfigsToAlter(BROKER, "", (AlterConfigOp("log.retention.ms", SET, "x"),)),
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            ConfigsToAlter(BROKER, "0", (AlterConfigOp("log.retention.ms", APPEND, "x"),)),
            ErrorCode.INVALID_CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (
            ConfigsToAlter(BROKER, "0", (AlterConfigOp("foo.bar", SUBTRACT, "x"),)),
            ErrorCode.INVALID_CONFIG,
            "Unknown config name: foo.bar",
        ),
        (
            ConfigsToAlter(BROKER, "0", (AlterConfigOp("log.retention.ms", 9, "1"),)),
            ErrorCode.INVALID_REQUEST,
            "Unknown operations type 9",
        ),
    ],
)
def test_a_bad_change_is_refused_in_the_words_of_kafka(
    change: ConfigsToAlter, error: ErrorCode, message: str
) -> None:
    decision = MACHINE.decide(topic(), IncrementalAlterConfigs((change,)))
    named = (change.resource_type, change.resource_name)
    assert decision.reply == (ConfigAlteration(*named, error, message),)
    assert not decision.records


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            ConfigsToReplace(TOPIC, "t", (("a", "1"), ("a", "2"))),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            ConfigsToReplace(TOPIC, "t", (("retention.ms", None),)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            ConfigsToReplace(TOPIC, "nope", ()),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            ConfigsToReplace(ConfigResourceType.BROKER_LOGGER, "0", ()),
            ErrorCode.INVALID_REQUEST,
            "Unknown resource type 8",
        ),
        (
            ConfigsToReplace(BROKER, "", (("node.id", "3"),)),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id]",
        ),
    ],
)
def test_a_bad_replacement_is_refused_in_the_words_of_kafka(
    change: ConfigsToReplace, error: ErrorCode, message: str
) -> None:
    decision = MACHINE.decide(topic(), AlterConfigs((change,)))
    named = (change.resource_type, change.resource_name)
    assert decision.reply == (ConfigAlteration(*named, error, message),)
    assert not decision.records


def test_a_resource_named_twice_is_refused_twice_and_its_neighbour_is_not() -> None:
    twice = ConfigsToReplace(TOPIC, "t", (("retention.ms", "1"),))
    fine = ConfigsToReplace(BROKER, "", (("log.retention.ms", "1"),))
    decision = MACHINE.decide(topic(), AlterConfigs((twice, fine, twice)))
    refused = ConfigAlteration(
        TOPIC, "t", ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
    )
    assert decision.reply == (refused, ConfigAlteration(BROKER, ""), refused)
    image = MACHINE.apply(topic(), decision.records)
    assert image.broker_configs(None) == {"log.retention.ms": "1"}


def test_deleting_a_key_that_no_topic_knows_is_no_error() -> None:
    image, answer = alter(topic(), AlterConfigOp("foo", DELETE))
    assert answer.error is ErrorCode.NONE
    assert not image.configs
