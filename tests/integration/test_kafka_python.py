"""kafka-python against a broker process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.support.brokers import BrokerProcess
from tests.support.topics import CODECS, FIRST_TIMESTAMP_MS, Sample, samples

_PATIENCE_SECONDS = 30
_BIG_BYTES = 900_000


@contextmanager
def _producer(broker: BrokerProcess, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    try:
        yield producer
    finally:
        producer.close(timeout=_PATIENCE_SECONDS)


@contextmanager
def _consumer(broker: BrokerProcess, topic: str, **settings: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        **settings,
    )
    consumer.assign([TopicPartition(topic, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


def _read(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    polls = 0
    while len(found) < count:
        for records in consumer.poll(timeout_ms=1000).values():
            found.extend(records)
        polls += 1
        assert polls < _PATIENCE_SECONDS, f"{len(found)} of {count} records came"
    return found


def _send(producer: KafkaProducer, topic: str, sent: list[Sample]) -> list[int]:
    futures = [
        producer.send(
            topic,
            value=sample.value,
            key=sample.key,
            headers=list(sample.headers),
            partition=0,
            timestamp_ms=sample.timestamp_ms,
        )
        for sample in sent
    ]
    return [future.get(_PATIENCE_SECONDS).offset for future in futures]


def _sample_of(record: Any) -> Sample:
    headers = tuple((name, value) for name, value in record.headers)
    return Sample(record.key, record.value, headers, record.timestamp)


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(broker: BrokerProcess, topic: str, codec: str) -> None:
    sent = samples()
    chosen = None if codec == "none" else codec
    with _producer(broker, compression_type=chosen, linger_ms=20) as producer:
        assert _send(producer, topic, sent) == list(range(len(sent)))
    with _consumer(broker, topic) as consumer:
        assert [_sample_of(record) for record in _read(consumer, len(sent))] == sent


def test_an_idempotent_producer_keeps_order_without_gaps(broker: BrokerProcess, topic: str) -> None:
    with _producer(broker, enable_idempotence=True, batch_size=400) as producer:
        futures = [producer.send(topic, str(number).encode()) for number in range(500)]
        offsets = [future.get(_PATIENCE_SECONDS).offset for future in futures]
    assert offsets == list(range(500))


def test_large_messages_come_back_whole(broker: BrokerProcess, topic: str) -> None:
    value = bytes(range(250)) * (_BIG_BYTES // 250)
    with _producer(broker, max_request_size=2_000_000) as producer:
        for _ in range(3):
            producer.send(topic, value).get(_PATIENCE_SECONDS)
    # Each record is larger than what the reader asks for; one whole batch must come all the same.
    with _consumer(broker, topic, max_partition_fetch_bytes=1000) as consumer:
        assert [record.value for record in _read(consumer, 3)] == [value] * 3


def test_reading_starts_at_a_time(broker: BrokerProcess, topic: str) -> None:
    with _producer(broker) as producer:
        _send(producer, topic, samples(10))
    partition = TopicPartition(topic, 0)
    with _consumer(broker, topic) as consumer:
        found = consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS + 2500})[partition]
        assert (found.offset, found.timestamp) == (3, FIRST_TIMESTAMP_MS + 3000)
        assert consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS * 2})[partition] is None
        consumer.seek(partition, found.offset)
        assert _read(consumer, 7)[0].offset == 3
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}


def test_deleted_records_are_gone(broker: BrokerProcess, topic: str) -> None:
    with _producer(broker) as producer:
        _send(producer, topic, samples(10))
    partition = TopicPartition(topic, 0)
    with _admin(broker) as admin:
        admin.delete_records({partition: 6})
    with _consumer(broker, topic) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 6}
        assert [record.offset for record in _read(consumer, 4)] == [6, 7, 8, 9]


def test_configs_are_changed_and_described(broker: BrokerProcess, topic: str) -> None:
    with _admin(broker) as admin:
        admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "4242"})]
        )
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "4242" in str(described)


def test_trap_07_the_advertised_versions_make_it_a_kafka_4_3(
    broker: BrokerProcess,
) -> None:
    with _admin(broker) as admin:
        # It infers the release from DescribeLogDirs, ListOffsets, Produce and Fetch versions.
        assert admin.get_broker_version_data(0).broker_version >= (4, 3)
