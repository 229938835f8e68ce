"""librdkafka members of a group, polled in turn by the test itself: no threads, no sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.02
# How a group divides its partitions: by its leader, all at once or in steps, or by the broker.
STYLES: dict[str, dict[str, str]] = {
    "eager": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
    "cooperative": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "broker": {"group.protocol": "consumer"},
}
_CLASSIC = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "100"}
Place = tuple[str, int]  # topic and partition
Read = tuple[str, int, int]  # topic, partition and offset


class Member:
    """One consumer with everything that it was told and that it read."""

    def __init__(
        self, bootstrap_servers: str, group: str, topics: Iterable[str], style: str, **settings: Any
    ) -> None:
        classic = {} if style == "broker" else _CLASSIC
        more = {
            name if name == "on_commit" else name.replace("_", "."): value
            for name, value in settings.items()
        }
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
                **STYLES[style],
                **classic,
                **more,
            }
        )
        self.owned: set[Place] = set()
        self.assigned: list[set[Place]] = []
        self.revoked: list[set[Place]] = []
        self.lost: list[set[Place]] = []
        self.read: list[Read] = []
        self.errors: list[KafkaError] = []
        self._closed = False
        if topics:
            self.subscribe(topics)

    def subscribe(self, topics: Iterable[str]) -> None:
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._assigned(partitions),
            on_revoke=lambda _, partitions: self._released(partitions, self.revoked),
            on_lost=lambda _, partitions: self._released(partitions, self.lost),
        )

    def poll(self, seconds: float = POLL_SECONDS) -> list[Message]:
        """Whatever comes in one poll; records are noted."""
        found = self.consumer.consume(200, timeout=seconds)
        for message in found:
            error = message.error()
            if error is not None:
                self.errors.append(error)
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self.read.append((topic, partition, offset))
        return found

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.consumer.close()

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        places = _places(partitions)
        self.assigned.append(places)
        self.owned |= places

    def _released(self, partitions: list[TopicPartition], into: list[set[Place]]) -> None:
        places = _places(partitions)
        into.append(places)
        self.owned -= places


def _places(partitions: list[TopicPartition]) -> set[Place]:
    return {(each.topic, each.partition) for each in partitions}


def poll_until(
    condition: Callable[[], bool], what: str, *members: Member, seconds: float = PATIENCE_SECONDS
) -> None:
    """Poll all members in turn until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        state = [(sorted(each.owned), each.errors) for each in members]
        assert time.monotonic() < deadline, f"waited in vain for {what}: {state}"
        for each in members:
            each.poll()


def shares(*members: Member) -> list[int]:
    """How many partitions each member owns."""
    return [len(each.owned) for each in members]


def until_shared(partitions: int, *members: Member) -> None:
    """Poll until the members own everything, evenly and nothing twice."""
    least = partitions // len(members)

    def divided() -> bool:
        counts = shares(*members)
        owned = set().union(*(each.owned for each in members))
        return min(counts) >= least and sum(counts) == partitions == len(owned)

    poll_until(divided, f"{partitions} partitions to be shared", *members)


@contextmanager
def members_closed() -> Iterator[Callable[..., Member]]:
    """Makes members and closes them in the end."""
    made: list[Member] = []

    def make(*arguments: Any, **settings: Any) -> Member:
        made.append(Member(*arguments, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.close()
