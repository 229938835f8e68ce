"""Parsing of values: Kafka's rules and Kafka's words."""

import pytest

from headrace.core.config_keys import (
    ConfigType,
    LevelOrDefault,
    OneOf,
    Range,
    format_value,
    parse_value,
    suggestion,
)
from headrace.core.errors import ErrorCode, InvalidConfig


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.INT, " +5 ", 5),
        (ConfigType.LONG, "-9223372036854775808", -(2**63)),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.LIST, "compact , delete", ("compact", "delete")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " text ", "text"),
    ],
)
def test_text_becomes_a_typed_value(type_: ConfigType, text: str, value: object) -> None:
    assert parse_value("some.key", type_, text) == value


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.LONG, "9223372036854775808", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "x", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "nan", "Not a number of type DOUBLE"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_kafkas_words(
    type_: ConfigType, text: str, message: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_value("some.key", type_, text)
    assert str(refused.value) == f"Invalid value {text} for configuration some.key: {message}"
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_list_with_an_empty_word_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"'some\.key' values must not be empty"):
        parse_value("some.key", ConfigType.LIST, "delete,")


def test_limits_are_inclusive_and_named_in_kafkas_words() -> None:
    assert Range(1, 3).problem(1) is None
    assert Range(1, 3).problem(3) is None
    assert Range(1, 3).problem(0) == "Value must be at least 1"
    assert Range(1, 3).problem(4) == "Value must be no more than 3"
    assert LevelOrDefault(1, 9).problem(-1) is None
    assert LevelOrDefault(1, 9).problem(0) == "Value must be between 1 and 9 or equal to -1"
    assert OneOf(("a", "b")).problem(("a", "c")) == "String must be one of: a, b"


def test_limits_are_documented_as_kafka_documents_them() -> None:
    assert [str(Range(-1)), str(Range(0, 1)), str(OneOf(("a", "b")))] == [
        "[-1,...]",
        "[0,...,1]",
        "[a, b]",
    ]


def test_values_are_shown_as_describe_configs_shows_them() -> None:
    values = [True, 5, 0.5, ("a", "b"), (), None]
    assert [format_value(value) for value in values] == ["true", "5", "0.5", "a,b", "", None]


def test_a_mistyped_key_finds_its_neighbour_and_a_strange_one_does_not() -> None:
    known = {"log.retention.ms": 1, "node.id": 2}
    assert suggestion("log.retntion.ms", known) == "did you mean log.retention.ms?"
    assert suggestion("frobnicate", known) == ""
