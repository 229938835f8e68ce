"""Members of a group on the clients' host of a node, who write down what they read and commit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from headrace.client import ConsumerSettings
from headrace.client.aio.consumer import AsyncConsumer
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from tests.simulation.clients import TOPIC, ClientHost
from tests.simulation.processes import Process
from tests.support.group_history import Commit, Final, GroupHistory, Observed, Partition, Tenure

GROUP = "readers"
MEMBERS = 2
SESSION_MS = 6_000
SETTLED_SECONDS_MAX = 60.0
LOOKS_APART_SECONDS = 0.7

GroupProtocol = Literal["classic", "consumer"]
Start = Callable[[Process, Awaitable[None]], "asyncio.Task[None]"]


class GroupMember:
    """One process: polls, and commits after about every second poll that brought something."""

    def __init__(self, clients: ClientHost, name: str, history: GroupHistory) -> None:
        self.name = name
        self.history = history
        self.held: dict[TopicPartition, tuple[int, list[int]]] = {}
        self.process = Process(name, clients.host)
        self._clients = clients
        self._random = clients.streams(f"{clients.host}/{name}")
        self._committing: tuple[int, dict[TopicPartition, int]] | None = None

    async def live(self, protocol: GroupProtocol, stop: asyncio.Event) -> None:
        settings = ConsumerSettings(
            GROUP,
            group_protocol=protocol,
            offset_reset="earliest",
            auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            # A join waits so long (and 5 s) for its answer, which a broker that has lost its power
            # will never send: nothing is written on that connection, so nothing finds it out.
            max_poll_interval_ms=10_000,
        )
        # No `async with`: nothing of a member that dies is unwound.
        client = self._clients.client(self.name)
        consumer = client.consumer(settings)
        await consumer.subscribe(
            [TOPIC], on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )
        while not stop.is_set():
            try:
                await self._poll(consumer)
            except HeadraceError:
                await asyncio.sleep(0.1)
        await client.close()
        self.ended()

    async def _poll(self, consumer: AsyncConsumer) -> None:
        positions = {}
        for partition, records in (await consumer.poll(timeout_ms=300)).items():
            self.held[partition][1].extend(record.offset for record in records)
            positions[partition] = records[-1].offset + 1
        if not positions or self._random.random() < 0.5:
            return
        self._committing = self._now(), positions
        ok = False
        try:
            await consumer.commit(positions)
            ok = True
        finally:
            self._commit_ended(ok=ok)

    def _commit_ended(self, *, ok: bool) -> None:
        assert self._committing is not None
        (began, positions), self._committing = self._committing, None
        for partition, offset in positions.items():
            commit = Commit(self.name, place(partition), began, self._now(), offset, ok)
            self.history.commits.append(commit)

    def ended(self) -> None:
        """It lives no more; what is under way may be done all the same."""
        if self._committing is not None:
            self._commit_ended(ok=False)
        self._give_up(list(self.held), "ended")

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.held[partition] = (self._now(), [])

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions, "revoked")

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions, "lost")

    def _give_up(self, partitions: list[TopicPartition], how: str) -> None:
        for partition in partitions:
            if partition in self.held:
                began, offsets = self.held.pop(partition)
                tenure = Tenure(
                    self.name, place(partition), began, self._now(), how, tuple(offsets)
                )
                self.history.tenures.append(tenure)

    def _now(self) -> int:
        return microseconds(self._clients)


class SimulatedGroup:
    """A group of one topic: its members, one of whom dies and is replaced, and a bystander."""

    def __init__(self, clients: ClientHost, protocol: GroupProtocol, partitions: int) -> None:
        self.history = GroupHistory()
        self.clients = clients
        self._protocol = protocol
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._members: dict[str, GroupMember] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()

    def start(self, seconds: float, died: Callable[[Process], None]) -> None:
        """`died` is told of the process that dies on the way."""
        for number in range(1, MEMBERS + 1):
            self._add(f"member-{number}")
        bystander = Process("bystander", self.clients.host)
        self._tasks.append(self.clients.loop.start(bystander, self._watch()))
        at = self.clients.streams(f"{self.clients.host}/deaths").random() * seconds
        self.clients.loop.call_later(at, self._replace, "member-1", "member-3", died)

    def _add(self, name: str) -> None:
        member = self._members[name] = GroupMember(self.clients, name, self.history)
        living = member.live(self._protocol, self._stop)
        self._tasks.append(self.clients.loop.start(member.process, living))

    def _replace(self, old: str, new: str, died: Callable[[Process], None]) -> None:
        member = self._members.pop(old)
        self._tasks.pop(0)  # never done
        member.process.alive = False
        member.ended()
        died(member.process)
        self._add(new)

    async def _watch(self) -> None:
        async with self.clients.client("bystander") as client:
            while not self._stop.is_set():
                await asyncio.sleep(LOOKS_APART_SECONDS)
                began = microseconds(self.clients)
                try:
                    found = await client.admin.committed_offsets(GROUP)
                except HeadraceError:
                    continue
                ended = microseconds(self.clients)
                for partition in self._partitions:
                    offset = found[partition].offset if partition in found else -1
                    self.history.observed.append(Observed(place(partition), began, ended, offset))

    async def finish(self, ends: dict[TopicPartition, int]) -> None:
        """All has healed and nothing is written any more: soon everything is read, and owned."""
        loop = self.clients.loop
        began = loop.time()
        while loop.time() - began < SETTLED_SECONDS_MAX and not self._is_settled(ends):
            await asyncio.sleep(0.1)
        owners = {
            place(partition): member.name
            for member in self._members.values()
            for partition in member.held
        }
        timestamps = {place(partition): range(end) for partition, end in ends.items()}
        self.history.final = Final(timestamps, owners, loop.time() - began, SETTLED_SECONDS_MAX)
        self._stop.set()
        for task in self._tasks:
            await task

    def _is_settled(self, ends: dict[TopicPartition, int]) -> bool:
        held = [partition for member in self._members.values() for partition in member.held]
        if sorted(held) != sorted(ends):
            return False
        read = {
            partition: offsets[-1] + 1 if offsets else -1
            for member in self._members.values()
            for partition, (_, offsets) in member.held.items()
        }
        return all(read[partition] in (-1, end) for partition, end in ends.items()) and (
            self._everything_was_read(ends)
        )

    def _everything_was_read(self, ends: dict[TopicPartition, int]) -> bool:
        seen: dict[Partition, set[int]] = {place(partition): set() for partition in ends}
        for tenure in self.history.tenures:
            seen[tenure.partition].update(tenure.offsets)
        for member in self._members.values():
            for partition, (_, offsets) in member.held.items():
                seen[place(partition)].update(offsets)
        return all(len(seen[place(partition)]) == end for partition, end in ends.items())


def place(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def microseconds(clients: ClientHost) -> int:
    return int(clients.loop.time() * 1e6)
