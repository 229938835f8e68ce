"""Batch reads through `spark.read.format("headrace")`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client import Client, ProducerSettings
from headrace.testing import Broker

Reader = Callable[..., DataFrame]
TIME_MS = 1_700_000_000_000


@pytest.fixture
def read(spark: SparkSession, broker: Broker) -> Reader:
    """`read(subscribe="t", startingOffsets="...")`; dots in names are written as __."""

    def load(**options: Any) -> DataFrame:
        reader = spark.read.format("headrace")
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return load


def send(
    client: Client, topic: str, values: Sequence[bytes | None], *, partition: int = 0, **more: Any
) -> None:
    with client.producer(ProducerSettings(linger_ms=0)) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=partition, timestamp_ms=TIME_MS + number, **more)


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("partition", "offset").collect()]


def test_the_columns_are_those_of_the_kafka_connector(
    read: Reader, client: Client, topic: str
) -> None:
    with client.producer() as producer:
        producer.send(topic, b"one", key=b"k", timestamp_ms=TIME_MS)
        producer.send(topic, None, timestamp_ms=TIME_MS + 1)
    frame = read(subscribe=topic)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"one")
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert first.timestampType == 0
    moment = datetime.datetime.fromtimestamp(TIME_MS / 1000)
    assert first.timestamp == moment
    assert (second.key, second.value, second.offset) == (None, None, 1)
