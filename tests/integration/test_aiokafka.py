"""aiokafka against a broker process: the oldest request versions among the Python clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from tests.support.brokers import BrokerProcess
from tests.support.topics import CODECS, FIRST_TIMESTAMP_MS, Sample, samples

_PATIENCE_MS = 30_000


@asynccontextmanager
async def _producer(broker: BrokerProcess, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    # Its own default is acks=1, after which readers may not see the record yet.
    settings = {"acks": "all", **settings}
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def _consumer(
    broker: BrokerProcess, topic: str, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        **settings,
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        batch = await consumer.getmany(timeout_ms=_PATIENCE_MS, max_records=count - len(found))
        assert batch, f"{len(found)} of {count} records came"
        for records in batch.values():
            found.extend(records)
    return found


async def _send(producer: AIOKafkaProducer, topic: str, sent: list[Sample]) -> list[int]:
    futures = [
        await producer.send(
            topic,
            value=sample.value,
            key=sample.key,
            headers=list(sample.headers),
            partition=0,
            timestamp_ms=sample.timestamp_ms,
        )
        for sample in sent
    ]
    return [(await future).offset for future in futures]


def _sample_of(record: Any) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("codec", CODECS)
async def test_records_come_back_as_they_were_sent(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    sent = samples()
    chosen = None if codec == "none" else codec
    async with _producer(broker, compression_type=chosen, linger_ms=20) as producer:
        assert await _send(producer, topic, sent) == list(range(len(sent)))
    async with _consumer(broker, topic) as consumer:
        assert [_sample_of(record) for record in await _read(consumer, len(sent))] == sent


async def test_an_idempotent_producer_keeps_order_without_gaps(
    broker: BrokerProcess, topic: str
) -> None:
    async with _producer(broker, enable_idempotence=True, max_batch_size=300) as producer:
        assert await _send(producer, topic, samples(200)) == list(range(200))


async def test_large_messages_come_back_whole(broker: BrokerProcess, topic: str) -> None:
    value = b"large " * 150_000
    async with _producer(broker, max_request_size=2_000_000) as producer:
        await producer.send_and_wait(topic, value)
    async with _consumer(broker, topic, max_partition_fetch_bytes=1_000) as consumer:
        # It cannot grow its request by itself: the broker must send one whole batch regardless.
        assert (await _read(consumer, 1))[0].value == value


async def test_reading_starts_at_a_time(broker: BrokerProcess, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with _producer(broker) as producer:
        await _send(producer, topic, samples(10))
    async with _consumer(broker, topic) as consumer:
        found = await consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS + 6500})
        assert found[partition].offset == 7
        consumer.seek(partition, 7)
        assert [record.offset for record in await _read(consumer, 3)] == [7, 8, 9]
        assert await consumer.end_offsets([partition]) == {partition: 10}


async def test_deleted_records_are_gone(broker: BrokerProcess, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with _producer(broker) as producer:
        await _send(producer, topic, samples(10))
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_records({partition: RecordsToDelete(before_offset=4)})
        described = await admin.describe_topics([topic])
        assert described[0]["error_code"] == 0
    finally:
        await admin.close()
    async with _consumer(broker, topic) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 4}
        assert (await _read(consumer, 6))[0].offset == 4
