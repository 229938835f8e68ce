"""What a job may set when it writes to a topic, in the words of Spark's Kafka connector."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from headrace.client import ProducerSettings
from headrace.core.errors import InvalidConfig
from headrace.spark.connection import connection, given_kafka, number
from headrace.spark.delivery import DeliveryOptions
from headrace.spark.options import SOURCE_NAMES, refuse_unknown

TOPIC_SINK_NAMES: Final = ("topic", "delivery")
# What Spark itself puts among the options of a query.
SPARK_NAMES: Final = ("checkpointLocation", "queryName")

_SIZES: Final = {
    "batch.size": "batch_bytes",
    "max.request.size": "request_bytes_max",
    "buffer.memory": "buffer_bytes",
    "max.in.flight.requests.per.connection": "in_flight_max",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "max.block.ms": "block_ms_max",
}
_PRODUCER_KEYS: Final = (*_SIZES, "acks", "enable.idempotence", "compression.type")
_REFUSED: Final = {
    "linger.ms": "batches are made of whole columns, there is nothing to wait for",
    "retries": "delivery is tried until kafka.delivery.timeout.ms",
    "transactional.id": "transactions are not supported yet",
    "partitioner.class": "give a partition column instead",
}
# Large, since a task has all its rows at hand; topics take 1 MiB unless they say otherwise.
_BATCH_BYTES_DEFAULT: Final = 256 * 1024
_TEXT: Final = (StringType, BinaryType)


def topic_sink_options(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> DeliveryOptions:
    """The options and the columns, checked; raises InvalidConfig with what to change."""
    if overwrite:
        raise InvalidConfig("a topic cannot be overwritten: use mode('append')")
    refuse_unknown(options, (*TOPIC_SINK_NAMES, *SPARK_NAMES), other_side=SOURCE_NAMES)
    given = {name.lower(): str(value) for name, value in options.items()}
    _check_delivery(given.get("delivery", "at-least-once"))
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise InvalidConfig("option 'topic' is empty: give the name of a topic")
    kafka = given_kafka(options)
    for name, reason in _REFUSED.items():
        if name in kafka:
            raise InvalidConfig(f"option 'kafka.{name}' cannot be set: {reason}")
    return DeliveryOptions(
        client=connection(options, also=_PRODUCER_KEYS),
        producer=_producer(kafka),
        topic=topic,
        columns=_columns(schema, topic),
    )


def _check_delivery(delivery: str) -> None:
    if delivery == "exactly-once":
        raise InvalidConfig(
            "delivery=exactly-once needs transactions, which are not supported yet: write "
            "at-least-once, with a key by which readers can tell a repeated record"
        )
    if delivery != "at-least-once":
        raise InvalidConfig(f"delivery={delivery!r} is not known; allowed is at-least-once")


def _producer(kafka: Mapping[str, str]) -> ProducerSettings:
    if kafka.get("acks", "all").lower() not in ("all", "-1"):
        raise InvalidConfig("kafka.acks must be all: with less, acknowledged rows could be lost")
    if kafka.get("enable.idempotence", "true").lower() != "true":
        raise InvalidConfig("kafka.enable.idempotence must be true: retries would write twice")
    sizes: dict[str, Any] = {"batch_bytes": _BATCH_BYTES_DEFAULT}
    sizes |= {ours: number(kafka, theirs) for theirs, ours in _SIZES.items() if theirs in kafka}
    codec: Any = kafka.get("compression.type", "none").lower()
    return ProducerSettings(codec=codec, **sizes)


def _columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The names of our columns that the rows have; others are left alone, as the connector does."""
    kinds: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        raise InvalidConfig(f"there must be a column 'value'; there are {', '.join(kinds) or '-'}")
    if topic is None and "topic" not in kinds:
        raise InvalidConfig("there is neither an option nor a column 'topic' to say where to write")
    _expect(kinds, ("key", "value"), _TEXT, "string or binary")
    _expect(kinds, ("topic",), (StringType,), "string")
    _expect(kinds, ("partition",), (IntegerType,), "int")
    if "headers" in kinds and not _are_headers(kinds["headers"]):
        raise InvalidConfig(
            f"column 'headers' is {kinds['headers'].simpleString()}, and must be "
            "array<struct<key:string,value:binary>>"
        )
    unused = {"topic"} if topic is not None else set()
    ours = ("key", "value", "headers", "topic", "partition")
    return tuple(name for name in ours if name in kinds and name not in unused)


def _expect(
    kinds: Mapping[str, DataType],
    names: Iterable[str],
    allowed: tuple[type[DataType], ...],
    words: str,
) -> None:
    for name in names:
        if name in kinds and not isinstance(kinds[name], allowed):
            kind = kinds[name].simpleString()
            raise InvalidConfig(f"column {name!r} is {kind}, and must be {words}: cast it")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
