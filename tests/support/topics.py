"""Topics made through a real client, and the samples that every client must bring back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# An hour ago: well within what retention keeps.
FIRST_TIMESTAMP_MS = time.time_ns() // 1_000_000 - 3_600_000
_PATIENCE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Sample:
    """A record as it is sent and as it must come back."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def samples(count: int = 40) -> list[Sample]:
    """Keys and none, values and none (never neither), headers and none, each with its own time."""
    return [
        Sample(
            key=None if number % 5 == 0 else f"key-{number}".encode(),
            value=None if number % 7 == 3 and number % 5 else f"value-{number} ".encode() * 20,
            headers=(("number", str(number).encode()), ("empty", b"")) if number % 3 else (),
            timestamp_ms=FIRST_TIMESTAMP_MS + number * 1000,
        )
        for number in range(count)
    ]


class Topics:
    """Creates topics on one broker and waits until they can be used."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and wait until each of its partitions has a leader."""
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        self.admin.create_topics([new])[topic].result(_PATIENCE_SECONDS)
        self.wait_for(topic, partitions)
        return topic

    def wait_for(self, topic: str, partitions: int) -> None:
        """Wait until a topic has this many led partitions."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = self.admin.list_topics(topic, timeout=_PATIENCE_SECONDS).topics[topic]
            led = [each for each in found.partitions.values() if each.leader >= 0]
            if found.error is None and len(led) == partitions:
                return
            assert time.monotonic() < deadline, f"{topic} has {len(led)} leaders: {found.error}"
            time.sleep(0.01)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is no longer listed."""
        self.admin.delete_topics([topic])[topic].result(_PATIENCE_SECONDS)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while topic in self.admin.list_topics(timeout=_PATIENCE_SECONDS).topics:
            assert time.monotonic() < deadline, f"{topic} is still listed"
            time.sleep(0.01)
