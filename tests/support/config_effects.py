"""What tests of configuration keys share: the label, the broker, and looks at its files."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from headrace.client import (
    EARLIEST,
    LATEST,
    Client,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    ProducerSettings,
    TopicPartition,
)
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.header import BatchHeader, iterate_headers
from headrace.testing import Broker

F = TypeVar("F", bound=Callable[..., object])

WAIT_SECONDS = 20.0
# Housekeeping that comes round at once instead of every few seconds or minutes.
BUSY = {
    "log.retention.check.interval.ms": "20",
    "log.cleaner.backoff.ms": "20",
    # Only what is on disk for certain is compacted.
    "log.flush.offset.checkpoint.interval.ms": "20",
}


def effect_of(*names: str) -> Callable[[F], F]:
    """Label a test with the configuration keys whose effect it shows."""

    def label(test: F) -> F:
        test.shows = names  # type: ignore[attr-defined]  # read back by `shown_in`
        return test

    return label


def shown_in(*modules: ModuleType) -> set[str]:
    """All keys that the tests of some modules are labelled with."""
    tests = [test for module in modules for test in vars(module).values()]
    return {name for test in tests for name in getattr(test, "shows", ())}


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Return as soon as `holds` does; what log maintenance does has no event to wait for."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.01)


def publish(
    broker: Broker,
    topic: str,
    values: Iterable[bytes | None],
    *,
    keys: Iterable[bytes | None] | None = None,
    timestamps_ms: Iterable[int | None] | None = None,
    settings: ProducerSettings | None = None,
) -> list[int]:
    """Send each value in a batch of its own; their offsets."""
    values = list(values)
    keys = list(keys) if keys is not None else [None] * len(values)
    stamps = list(timestamps_ms) if timestamps_ms is not None else [None] * len(values)
    chosen = settings or ProducerSettings(linger_ms=0)
    with Client(broker.bootstrap_servers) as client, client.producer(chosen) as producer:
        return [
            producer.send_and_wait(topic, value, key=key, partition=0, timestamp_ms=stamp).offset
            for value, key, stamp in zip(values, keys, stamps, strict=True)
        ]


def alter(broker: Broker, topic: str, configs: Mapping[str, str]) -> None:
    """Set topic configs while the broker runs."""
    changes = [ConfigChange(name, value) for name, value in configs.items()]
    with Client(broker.bootstrap_servers) as client:
        client.admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, topic): changes})


def alter_brokers(broker: Broker, configs: Mapping[str, str], name: str = "") -> None:
    """Set dynamic configs of one broker, or (the empty name) of all."""
    changes = [ConfigChange(key, value) for key, value in configs.items()]
    with Client(broker.bootstrap_servers) as client:
        client.admin.alter_configs({ConfigResource(ConfigResourceType.BROKER, name): changes})


def config_value(broker: Broker, topic: str, name: str) -> str | None:
    """What DescribeConfigs says about a topic's key."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    with Client(broker.bootstrap_servers) as client:
        return client.admin.describe_configs([resource])[resource][name].value


def start_offset(broker: Broker, topic: str) -> int:
    """The first offset that can be read."""
    partition = TopicPartition(topic, 0)
    with Client(broker.bootstrap_servers) as client:
        return client.admin.list_offsets({partition: EARLIEST})[partition].offset


def end_offset(broker: Broker, topic: str) -> int:
    """The offset behind the last record."""
    partition = TopicPartition(topic, 0)
    with Client(broker.bootstrap_servers) as client:
        return client.admin.list_offsets({partition: LATEST})[partition].offset


def partition_files(broker: Broker, topic: str, suffix: str) -> list[Path]:
    """Files of a topic's first partition, oldest first."""
    return sorted(Path(broker.data_dir, f"{topic}-0").glob(f"*{suffix}"))


def stored_batches(broker: Broker, topic: str) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch as it lies on disk, with its records."""
    found = []
    for segment in partition_files(broker, topic, ".log"):
        try:
            data = segment.read_bytes()
        except FileNotFoundError:  # compaction or retention was quicker
            continue
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size]
            found.append((header, list(iterate_records(batch, 0, header))))
    return found


def stored_keys(broker: Broker, topic: str) -> list[bytes | None]:
    """Keys of all records on disk, in order."""
    return [record.key for _, records in stored_batches(broker, topic) for record in records]
