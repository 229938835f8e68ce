"""confluent-kafka (librdkafka) against a broker process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from tests.support.brokers import BrokerProcess
from tests.support.topics import CODECS, FIRST_TIMESTAMP_MS, Sample, Topics, samples

_PATIENCE_SECONDS = 30


def _producer(broker: BrokerProcess, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, **named})


@contextmanager
def _reading(
    broker: BrokerProcess, *assigned: TopicPartition, **settings: Any
) -> Iterator[Consumer]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "by-assignment",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **named,
        }
    )
    consumer.assign(list(assigned))
    try:
        yield consumer
    finally:
        consumer.close()


def _read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=_PATIENCE_SECONDS)
        assert messages, f"{len(found)} of {count} records came"
        for message in messages:
            assert message.error() is None, message.error()
        found.extend(messages)
    return found


def _sample_of(message: Message) -> Sample:
    headers: Any = message.headers() or []
    return Sample(message.key(), message.value(), tuple(headers), message.timestamp()[1])


def _send(producer: Producer, topic: str, sent: list[Sample]) -> list[int]:
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        offsets.append(offset)

    for sample in sent:
        producer.produce(
            topic,
            key=sample.key,
            value=sample.value,
            headers=list(sample.headers),
            timestamp=sample.timestamp_ms,
            partition=0,
            on_delivery=delivered,
        )
    assert producer.flush(_PATIENCE_SECONDS) == 0
    return offsets


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["1", "all"])
def test_records_come_back_as_they_were_sent(
    broker: BrokerProcess, topic: str, codec: str, acks: str
) -> None:
    sent = samples()
    offsets = _send(_producer(broker, compression_type=codec, acks=acks), topic, sent)
    assert offsets == list(range(len(sent)))
    with _reading(broker, TopicPartition(topic, 0, 0), check_crcs=True) as consumer:
        assert [_sample_of(message) for message in _read(consumer, len(sent))] == sent


def test_records_without_acknowledgement_arrive_too(broker: BrokerProcess, topic: str) -> None:
    producer = _producer(broker, acks=0)
    for number in range(100):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(_PATIENCE_SECONDS) == 0
    with _reading(broker, TopicPartition(topic, 0, 0)) as consumer:
        found = [message.value() for message in _read(consumer, 100)]
    assert found == [str(number).encode() for number in range(100)]


def test_large_messages_go_through_where_the_topic_allows_them(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create(f"large-{uuid.uuid4().hex}", 1, {"max.message.bytes": "6000000"})
    value = bytes(range(256)) * 20_000
    producer = _producer(broker, message_max_bytes=8_000_000)
    producer.produce(topic, value, partition=0)
    producer.produce(topic, b"small", partition=0)
    assert producer.flush(_PATIENCE_SECONDS) == 0
    with _reading(broker, TopicPartition(topic, 0, 0), fetch_message_max_bytes=1000) as consumer:
        assert [message.value() for message in _read(consumer, 2)] == [value, b"small"]


def test_a_message_beyond_the_topics_limit_is_refused_and_the_next_goes_through(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create(f"limited-{uuid.uuid4().hex}", 1, {"max.message.bytes": "1000"})
    outcomes: list[KafkaError | None] = []
    producer = _producer(broker)
    for value in (b"x" * 2000, b"y"):
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: outcomes.append(error)
        )
        producer.flush(_PATIENCE_SECONDS)
    refused, accepted = outcomes
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert accepted is None


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_keeps_order_without_gaps(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    producer = _producer(
        broker, enable_idempotence=True, compression_type=codec, batch_num_messages=50
    )
    for number in range(2000):
        producer.produce(topic, str(number), partition=0)
        producer.poll(0)
    assert producer.flush(_PATIENCE_SECONDS) == 0
    with _reading(broker, TopicPartition(topic, 0, 0)) as consumer:
        found = _read(consumer, 2000)
    assert [message.value() for message in found] == [str(n).encode() for n in range(2000)]
    assert [message.offset() for message in found] == list(range(2000))


def test_offsets_are_found_by_time(broker: BrokerProcess, topic: str) -> None:
    _send(_producer(broker), topic, samples(10))
    asked = [FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 3500, FIRST_TIMESTAMP_MS + 99_000]
    with _reading(broker) as consumer:
        found = [
            consumer.offsets_for_times([TopicPartition(topic, 0, at)], timeout=_PATIENCE_SECONDS)[0]
            for at in asked
        ]
        # Past the last record librdkafka answers with its "end" mark.
        assert [each.offset for each in found] == [0, 4, -1]
        consumer.assign([found[1]])
        assert _read(consumer, 1)[0].timestamp()[1] == FIRST_TIMESTAMP_MS + 4000


def test_deleted_records_are_gone_and_the_start_moves(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    _send(_producer(broker), topic, samples(20))
    request = [TopicPartition(topic, 0, 12)]
    for future in topics.admin.delete_records(request).values():
        assert future.result(_PATIENCE_SECONDS).low_watermark == 12
    with _reading(broker, TopicPartition(topic, 0, 0), auto_offset_reset="earliest") as consumer:
        marks = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE_SECONDS)
        assert marks == (12, 20)
        assert _read(consumer, 1)[0].offset() == 12


def test_offsets_are_listed_for_the_ends_and_the_newest_time(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    _send(_producer(broker), topic, samples(10))
    partition = TopicPartition(topic, 0)
    expected = {
        "earliest": (OffsetSpec.earliest(), 0),
        "latest": (OffsetSpec.latest(), 10),
        "newest": (OffsetSpec.max_timestamp(), 9),
        "by time": (OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 1), 1),
    }
    for spec, offset in expected.values():
        for future in topics.admin.list_offsets({partition: spec}).values():
            assert future.result(_PATIENCE_SECONDS).offset == offset


def test_configs_are_described_changed_and_given_back(topics: Topics, topic: str) -> None:
    def value() -> tuple[str | None, bool]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        for future in topics.admin.describe_configs([resource]).values():
            entry = future.result(_PATIENCE_SECONDS)["retention.ms"]
            return entry.value, entry.is_default
        raise AssertionError

    def change(operation: AlterConfigOpType, new: str | None) -> None:
        entry = ConfigEntry("retention.ms", new, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in topics.admin.incremental_alter_configs([resource]).values():
            future.result(_PATIENCE_SECONDS)

    default = value()
    assert default == ("604800000", True)
    change(AlterConfigOpType.SET, "123456")
    _eventually(lambda: value() == ("123456", False))
    change(AlterConfigOpType.DELETE, None)
    _eventually(lambda: value() == default)


def test_an_unknown_config_is_refused(topics: Topics, topic: str) -> None:
    entry = ConfigEntry("no.such.key", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in topics.admin.incremental_alter_configs([resource]).values():
        with pytest.raises(KafkaException) as refused:
            future.result(_PATIENCE_SECONDS)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_a_topic_made_again_has_a_new_id_and_starts_from_zero(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create(f"again-{uuid.uuid4().hex}")

    def topic_id() -> str:
        for future in topics.admin.describe_topics(TopicCollection([topic])).values():
            return str(future.result(_PATIENCE_SECONDS).topic_id)
        raise AssertionError

    first = topic_id()
    assert _send(_producer(broker), topic, samples(3)) == [0, 1, 2]
    topics.delete(topic)
    topics.create(topic)
    assert topic_id() != first
    assert _send(_producer(broker), topic, samples(2)) == [0, 1]
    with _reading(broker, TopicPartition(topic, 0, 0)) as consumer:
        assert len(_read(consumer, 2)) == 2


def test_partitions_are_added_and_take_records(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(f"grows-{uuid.uuid4().hex}")
    for future in topics.admin.create_partitions([NewPartitions(topic, 4)]).values():
        future.result(_PATIENCE_SECONDS)
    topics.wait_for(topic, 4)
    producer = _producer(broker)
    for partition in range(4):
        producer.produce(topic, str(partition), partition=partition)
    assert producer.flush(_PATIENCE_SECONDS) == 0
    assigned = [TopicPartition(topic, partition, 0) for partition in range(4)]
    with _reading(broker, *assigned) as consumer:
        found = {(message.partition(), message.value()) for message in _read(consumer, 4)}
    assert found == {(partition, str(partition).encode()) for partition in range(4)}


def test_a_transactional_producer_fails_at_once_until_transactions_exist(
    request: pytest.FixtureRequest, broker: BrokerProcess
) -> None:
    if request.config.getoption("--against") == "kafka":
        pytest.skip("Kafka has transactions")
    producer = _producer(broker, transactional_id=uuid.uuid4().hex)
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(_PATIENCE_SECONDS)
    error = refused.value.args[0]
    assert error.code() != KafkaError._TIMED_OUT
    assert not error.retriable()


def _eventually(condition: Any) -> None:
    """Configs reach a broker a moment after they were accepted."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
