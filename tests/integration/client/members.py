"""Consumers for the tests: three ways to be a member, and polls until something holds."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.client import AsyncClient, AsyncConsumer, ConsumerSettings, NewTopic, TopicPartition
from headrace.core.errors import HeadraceError

PATIENCE_SECONDS = 60
SESSION_MS = 3_000

PROTOCOLS = {
    "eager": ConsumerSettings(
        "g",
        assignors=("range",),
        offset_reset="earliest",
        auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
        fetch_wait_ms_max=100,
    ),
    "cooperative": ConsumerSettings(
        "g",
        assignors=("cooperative-sticky",),
        offset_reset="earliest",
        auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
        fetch_wait_ms_max=100,
    ),
    "consumer": ConsumerSettings(
        "g",
        group_protocol="consumer",
        offset_reset="earliest",
        auto_commit=False,
        fetch_wait_ms_max=100,
    ),
}


def new_settings(protocol: str, **changes: object) -> ConsumerSettings:
    """Settings for a group of the test's own."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    return replace(PROTOCOLS[protocol], **{"group_id": group, **changes})  # type: ignore[arg-type]


async def fill(client: AsyncClient, topic: str, count: int) -> None:
    """Records b"0", b"1", ... spread over the partitions in turn."""
    async with client.producer() as producer:
        for number in range(count):
            await producer.send(topic, str(number).encode())


async def new_topic(client: AsyncClient, partitions: int, records: int = 0) -> str:
    """A topic of the test's own."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    await client.admin.create_topics([NewTopic(topic, partitions=partitions)])
    await fill(client, topic, records)
    return topic


class Crew:
    """Consumers that are polled in turn; counts what they read and notes who was told what."""

    def __init__(self) -> None:
        self.values: Counter[bytes] = Counter()
        self.told: list[tuple[int, str, list[int]]] = []
        self.members: list[AsyncConsumer] = []

    async def enlist(self, consumer: AsyncConsumer, topic: str) -> AsyncConsumer:
        """Subscribe a consumer and poll it with the others from now on."""
        number = len(self.members)
        self.members.append(consumer)

        def note(what: str) -> Callable[[list[TopicPartition]], None]:
            return lambda each: self.told.append((number, what, [tp.partition for tp in each]))

        await consumer.subscribe(
            [topic], on_assigned=note("assigned"), on_revoked=note("revoked"), on_lost=note("lost")
        )
        return consumer

    async def until(self, holds: Callable[[], bool]) -> None:
        """Poll everybody until the condition holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                for member in list(self.members):
                    for records in (await member.poll(20)).values():
                        self.values.update(record.value or b"" for record in records)

    def shares(self) -> list[list[int]]:
        """What each member reads, by partition number."""
        return [[tp.partition for tp in member.assignment] for member in self.members]

    def is_divided(self, partitions: int) -> bool:
        """Whether everything has one owner, evenly."""
        shares = self.shares()
        everything = sorted(number for share in shares for number in share)
        sizes = [len(share) for share in shares]
        return everything == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    def has_read(self, count: int) -> bool:
        return len(self.values) == count

    def dismiss(self, member: AsyncConsumer) -> None:
        """Do not poll this one any more."""
        self.members.remove(member)


def told_to(told: Sequence[tuple[int, str, list[int]]], member: int, what: str) -> list[int]:
    """All partitions that a member was told this about."""
    mine = [numbers for who, kind, numbers in told if (who, kind) == (member, what)]
    return sorted(number for numbers in mine for number in numbers)


def changes(told: Sequence[tuple[int, str, list[int]]]) -> list[str]:
    """What was told, in order; that nothing was assigned yet is no change."""
    return [what for _, what, numbers in told if numbers]


async def refusal(*consumers: AsyncConsumer) -> HeadraceError:
    """Poll in turn until one raises; what it raises."""
    while True:
        for consumer in consumers:
            try:
                await consumer.poll(20)
            except HeadraceError as error:
                return error
