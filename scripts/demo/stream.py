"""Publish numbered records with a real client, and read them back."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

PARTITIONS = 3
DELIVERY_SECONDS_MAX = 60
STEP = 500

RecordPosition = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Published:
    """What the broker acknowledged, by record number."""

    positions: dict[int, RecordPosition] = field(default_factory=dict)
    failed: int = 0
    acknowledged_before: int = 0
    outage_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def acknowledged(self) -> int:
        return len(self.positions)


@dataclass(slots=True)
class ReadBack:
    """What was found in the topic, by record number."""

    positions: dict[int, RecordPosition] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    duplicates: int = 0
    seconds: float = 0.0


def create_topic(address: str, topic: str, config: dict[str, str] | None = None) -> None:
    """A topic with a few partitions."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for future in admin.create_topics(
        [NewTopic(topic, PARTITIONS, 1, config=config or {})]
    ).values():
        future.result()


def publish(
    address: str,
    topic: str,
    records: int,
    record_bytes: int,
    *,
    at: int,
    strike: Callable[[], None],
    console: Console,
) -> Published:
    """Send numbered records; once `at` of them are acknowledged, `strike` while more are sent."""
    outcome = Published()
    struck_at = 0.0

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        nonlocal struck_at
        if error is not None:
            outcome.failed += 1
            return
        if struck_at and not outcome.outage_seconds:
            outcome.outage_seconds = time.perf_counter() - struck_at
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        outcome.positions[number_of(value)] = (partition, offset)

    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 200,
            "delivery.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
            # A broker that is killed on purpose is no news.
            "log_level": 0,
        }
    )
    padding = b"." * record_bytes
    began = time.perf_counter()
    with progress_bar(console) as progress:
        task = progress.add_task("publishing", total=records)
        for first in range(0, records, STEP):
            for number in range(first, min(first + STEP, records)):
                value = b"%d " % number
                _send(producer, topic, value + padding[len(value) :], acknowledged)
            producer.poll(0)
            progress.update(task, completed=outcome.acknowledged)
            if not struck_at and outcome.acknowledged >= at:
                outcome.acknowledged_before = outcome.acknowledged
                struck_at = time.perf_counter()
                strike()
        _drain(producer, outcome, progress, task)
    outcome.seconds = time.perf_counter() - began
    return outcome


def _send(
    producer: Producer,
    topic: str,
    value: bytes,
    acknowledged: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=acknowledged)
            return
        except BufferError:  # the client's queue is full: wait for acknowledgements
            producer.poll(0.05)


def _drain(producer: Producer, outcome: Published, progress: Progress, task: TaskID) -> None:
    deadline = time.perf_counter() + DELIVERY_SECONDS_MAX
    while len(producer) and time.perf_counter() < deadline:
        producer.poll(0.05)
        progress.update(task, completed=outcome.acknowledged)
    progress.update(task, completed=outcome.acknowledged)


def read_back(address: str, topic: str, records: int, *, console: Console) -> ReadBack:
    """Read every partition from its beginning to its end."""
    outcome = ReadBack()
    began = time.perf_counter()
    with Topic(address, topic) as reader, progress_bar(console) as progress:
        outcome.ends = reader.ends()
        task = progress.add_task("reading back", total=records)
        for messages in reader.read():
            for message in messages:
                _keep(message, outcome)
            progress.update(task, completed=len(outcome.positions))
    outcome.seconds = time.perf_counter() - began
    return outcome


class Topic:
    """A topic as it stands now, read by a client that belongs to no group."""

    def __init__(self, address: str, topic: str) -> None:
        self._everywhere = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "unused",  # asked for by the client; partitions are assigned by hand
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )

    def ends(self) -> dict[int, int]:
        """The end of each partition."""
        asked = self._consumer.get_watermark_offsets
        return {each.partition: asked(each)[1] for each in self._everywhere}

    def read(self) -> Iterator[list[Message]]:
        """Everything from the beginning to the present end."""
        ends = self.ends()
        left = {partition for partition, end in ends.items() if end}
        self._consumer.assign(self._everywhere)
        while left:
            messages = self._consumer.consume(5_000, timeout=1.0)
            for message in messages:
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None:
                    raise KafkaException(error)
                if partition is not None and offset is not None and offset + 1 >= ends[partition]:
                    left.discard(partition)
            yield messages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _keep(message: Message, outcome: ReadBack) -> None:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert isinstance(value, bytes)
    number = number_of(value)
    if number in outcome.positions:
        outcome.duplicates += 1
    outcome.positions[number] = (partition, offset)


def number_of(value: bytes) -> int:
    """The number a record was published under."""
    return int(value[: value.index(b" ")])


def progress_bar(console: Console) -> Progress:
    """How far something has come."""
    return Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )
