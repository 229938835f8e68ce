"""Options and columns of the topic sink: each has its effect or is refused by name."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from headrace.core.errors import InvalidConfig
from headrace.spark.delivery import DeliveryOptions
from headrace.spark.sink_options import topic_sink_options

PAIR = StructType().add("key", StringType()).add("value", BinaryType())


def schema(**columns: DataType) -> StructType:
    built = StructType()
    for name, kind in (columns or {"value": BinaryType()}).items():
        built.add(name, kind)
    return built


def options(columns: StructType | None = None, /, **given: str) -> DeliveryOptions:
    named = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    named |= {name.replace("__", "."): value for name, value in given.items()}
    return topic_sink_options(named, columns or schema())


def test_the_promise_is_every_replica_and_no_doubles_by_retries() -> None:
    producer = options().producer
    assert producer.acks_number == -1
    assert producer.is_idempotent


@pytest.mark.parametrize(
    ("name", "value", "setting", "read"),
    [
        ("kafka__batch__size", "1000", "batch_bytes", 1000),
        ("kafka__max__request__size", "2000", "request_bytes_max", 2000),
        ("kafka__buffer__memory", "3000", "buffer_bytes", 3000),
        ("kafka__max__in__flight__requests__per__connection", "2", "in_flight_max", 2),
        ("kafka__delivery__timeout__ms", "4000", "delivery_timeout_ms", 4000),
        ("kafka__max__block__ms", "5000", "block_ms_max", 5000),
        ("kafka__compression__type", "zstd", "codec", "zstd"),
    ],
)
def test_producer_options_reach_the_producer(
    name: str, value: str, setting: str, read: object
) -> None:
    assert getattr(options(**{name: value}).producer, setting) == read


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delivery": "exactly-once"}, "needs transactions, which are not supported yet"),
        ({"delivery": "maybe"}, "'maybe' is not known; allowed is at-least-once"),
        ({"topik": "t"}, "unknown option 'topik': did you mean 'topic'"),
        ({"subscribe": "t"}, "'subscribe' is not for this side"),
        ({"topic": " "}, "'topic' is empty"),
        ({"kafka__acks": "1"}, "kafka.acks must be all"),
        ({"kafka__enable__idempotence": "false"}, "kafka.enable.idempotence must be true"),
        ({"kafka__linger__ms": "5"}, "nothing to wait for"),
        ({"kafka__retries": "3"}, "delivery.timeout.ms"),
        ({"kafka__transactional__id": "x"}, "transactions are not supported yet"),
        ({"kafka__partitioner__class": "x"}, "give a partition column"),
        ({"kafka__fetch__min__bytes": "1"}, "'kafka.fetch.min.bytes' has no meaning here"),
        ({"kafka__compression__type": "rar"}, "'rar' is not one of"),
        ({"kafka__batch__size": "big"}, "'big' is not a whole number"),
    ],
)
def test_what_has_no_effect_or_breaks_the_promise_is_refused(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        options(**given)


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(InvalidConfig, match="cannot be overwritten"):
        topic_sink_options({"topic": "t"}, schema(), overwrite=True)


def test_columns_that_are_not_ours_are_left_alone() -> None:
    given = schema(value=StringType(), key=BinaryType(), offset=LongType(), headers=ArrayType(PAIR))
    assert options(given).columns == ("key", "value", "headers")


def test_the_option_topic_goes_before_the_column() -> None:
    given = schema(value=BinaryType(), topic=StringType(), partition=IntegerType())
    assert options(given).columns == ("value", "partition")
    by_column = topic_sink_options({"kafka.bootstrap.servers": "h:1"}, given)
    assert by_column.columns == ("value", "topic", "partition")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": BinaryType()}, "there must be a column 'value'; there are key"),
        ({"value": IntegerType()}, "column 'value' is int, and must be string or binary: cast it"),
        ({"value": BinaryType(), "key": LongType()}, "column 'key' is bigint"),
        ({"value": BinaryType(), "partition": LongType()}, "column 'partition' is bigint"),
        ({"value": BinaryType(), "topic": BinaryType()}, "column 'topic' is binary"),
        ({"value": BinaryType(), "headers": StringType()}, "column 'headers' is string"),
        ({"value": BinaryType(), "headers": ArrayType(StringType())}, "column 'headers' is array"),
    ],
)
def test_columns_of_another_type_are_refused_by_name(
    columns: dict[str, DataType], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        options(schema(**columns))


def test_without_any_topic_there_is_nowhere_to_write() -> None:
    with pytest.raises(InvalidConfig, match="neither an option nor a column 'topic'"):
        topic_sink_options({"kafka.bootstrap.servers": "h:1"}, schema())


def test_options_travel_to_executors() -> None:
    chosen = options()
    assert pickle.loads(pickle.dumps(chosen)) == chosen
