"""Compaction of a broker's topics, seen by a real client: while it goes on, and after kills."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.integration.conftest import BrokerMaker
from tests.support.brokers import BrokerProcess
from tests.support.topics import Topics

TOPIC = "latest"
KEYS = 400
ROUNDS = 40
PATIENCE_SECONDS = 60
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.flush.offset.checkpoint.interval.ms": "300"}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
Value = bytes | None


def _fill(broker: BrokerProcess) -> dict[bytes, Value]:
    """Every key again and again, with every codec and some tombstones; what it must come to."""
    source = Random(5)
    newest: dict[bytes, Value] = {}
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec,
                "enable.idempotence": number % 2 == 0,
                "linger.ms": 5,
            }
        )
        for again in range(ROUNDS // 5):
            for key in range(KEYS):
                name = b"key-%d" % key
                noise = source.randbytes(300)
                value = None if (again + key) % 29 == 0 else b"%d.%d " % (number, again) + noise
                newest[name] = value
                producer.produce(TOPIC, value, name, partition=0)
                producer.poll(0)
        assert producer.flush(PATIENCE_SECONDS) == 0
    # What comes last stays in the active segment and closes the ones before.
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(1100):
        producer.produce(TOPIC, b"x" * 1000, b"filler-%d" % (number % 3), partition=0)
        newest[b"filler-%d" % (number % 3)] = b"x" * 1000
    assert producer.flush(PATIENCE_SECONDS) == 0
    return newest


def _read(broker: BrokerProcess) -> list[tuple[int, bytes, Value]]:
    """The whole topic as a consumer gets it, from the first offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    rows: list[tuple[int, bytes, Value]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while (message := consumer.poll(PATIENCE_SECONDS)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            rows.append((message.offset() or 0, message.key() or b"", message.value()))
    finally:
        consumer.close()
    return rows


def _check(rows: list[tuple[int, bytes, Value]], newest: dict[bytes, Value]) -> None:
    offsets = [offset for offset, _, _ in rows]
    assert offsets == sorted(set(offsets))
    assert {key: value for _, key, value in rows} == newest


def _settled(broker: BrokerProcess, newest: dict[bytes, Value]) -> list[tuple[int, bytes, Value]]:
    """Read until all but the active segment is compacted; every answer on the way must be right."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = _read(broker)
        _check(rows, newest)
        if len(rows) < KEYS + 1500:
            return rows
        assert time.monotonic() < deadline, f"{len(rows)} records are still there"


def _topics(broker: BrokerProcess, config: dict[str, str]) -> Topics:
    topics = Topics(broker.bootstrap_servers)
    # librdkafka now and then forgets an admin request made before its first metadata.
    topics.admin.list_topics(timeout=PATIENCE_SECONDS)
    topics.create(TOPIC, 1, config)
    return topics


def test_a_consumer_always_gets_the_newest_of_each_key(make_broker: BrokerMaker) -> None:
    broker = make_broker(SETTINGS)
    broker.start()
    _topics(broker, CONFIG)
    newest = _fill(broker)
    rows = _settled(broker, newest)
    broker.restart()
    _check(_read(broker), newest)
    assert len(rows) < KEYS * ROUNDS / 5


@pytest.mark.parametrize("sign", [".cleaned", ".swap", ".deleted"])
def test_a_kill_in_the_middle_of_a_compaction_loses_no_key(
    make_broker: BrokerMaker, sign: str
) -> None:
    held_off = {**CONFIG, "min.compaction.lag.ms": str(1 << 40)}
    broker = make_broker({**SETTINGS, "log.cleaner.backoff.ms": "1"})
    broker.start()
    topics = _topics(broker, held_off)
    newest = _fill(broker)
    _alter(topics, {"min.compaction.lag.ms": "0", "file.delete.delay.ms": "60000"})
    _wait_for(broker.partition_dir(TOPIC), sign)
    broker.kill()
    broker.start()
    _check(_read(broker), newest)
    _settled(broker, newest)


def _alter(topics: Topics, config: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    for future in topics.admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_SECONDS)


def _wait_for(directory: Path, sign: str) -> None:
    """Until a file of this ending is there: some step of a compaction is under way."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(path.name.endswith(sign) for path in directory.iterdir()):
        if sign == ".swap" and any(path.name.endswith(".deleted") for path in directory.iterdir()):
            return  # too quick to be seen
        assert time.monotonic() < deadline, f"no {sign} file was seen"
