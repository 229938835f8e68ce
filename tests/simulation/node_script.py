"""A life of a whole broker, watched at every step on its disk.

Topics are created, written, configured, emptied, deleted and created again through a real
client, and offsets are committed for a group; the broker is stopped, killed and loses power in
between. After every operation on the disk a `NodeCrashPoint` keeps a copy of the disk and of what
clients had been promised by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from headrace.client import (
    EARLIEST,
    LATEST,
    AsyncClient,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    ProducerSettings,
)
from headrace.core.ids import TopicPartition
from tests.simulation.clients import ClientHost, batches_between, records_in
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import LOSE_EVERYTHING, Survival
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import Machine
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.processes import Process
from tests.simulation.streams import Streams
from tests.support.history import History
from tests.support.history_checks import check_batches

ONE_AT_A_TIME = ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=60_000)
PRODUCE_TO = ("t", "u")
GROUP = "g"
NOTHING = -1
"""Stands for no committed offset."""


@dataclass(slots=True)
class TopicPromise:
    """What clients were told about one topic."""

    topic_id: UUID
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)
    records: dict[int, dict[int, bytes]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    """What the group may have committed for partition 0: its last commit, and one under way."""

    def copy(self) -> "TopicPromise":
        records = {number: dict(values) for number, values in self.records.items()}
        return TopicPromise(
            self.topic_id,
            self.partitions,
            dict(self.configs),
            records,
            dict(self.starts),
            set(self.committed),
        )


@dataclass(slots=True)
class Promises:
    """All of them; what is under way is in neither `topics` nor `gone`."""

    topics: dict[str, TopicPromise] = field(default_factory=dict)
    gone: set[UUID] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)

    def copy(self) -> "Promises":
        topics = {name: topic.copy() for name, topic in self.topics.items()}
        return Promises(topics, set(self.gone), set(self.sent))


class Stage:
    """A loop, a machine on a given disk, and a client host; gone with `close`."""

    def __init__(self, seed: int, disk: SimulatedFileSystem | None) -> None:
        self.loop = VirtualLoop()
        streams = Streams(seed)
        network = SimulatedNetwork(
            self.loop, streams("network"), Conditions(delay_seconds_max=0.0001)
        )
        settings = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
        self.machine = Machine(self.loop, network, streams, settings=settings, disk=disk)
        self.machine.set_sync_delay(0.001)
        self.host = ClientHost(self.loop, streams, History())

    def close(self) -> None:
        self.machine.crash(None)
        self.loop.run(asyncio.sleep(1))
        self.loop.close()


@dataclass(slots=True)
class NodeCrashPoint:
    """The disk right after one operation, and what had been promised before it."""

    operation: Operation
    disk: SimulatedFileSystem
    promises: Promises

    def problems_after(self, survival: Survival | None) -> list[str]:
        """Crash here, start the broker again, and say what a client finds wrong."""
        copy = self.disk.copy()
        after = copy.after_kill() if survival is None else copy.after_power_cut(survival)
        stage = Stage(self.operation.number, after)
        found: list[str] = []
        try:
            stage.loop.run(stage.loop.start(Process("check"), self._check(stage, found)))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        finally:
            stage.close()
        return [f"after {self.operation}: {problem}" for problem in found]

    async def _check(self, stage: Stage, found: list[str]) -> None:
        assert await stage.machine.start()
        async with stage.host.client("check") as client:
            present = {topic.name: topic for topic in await client.admin.list_topics()}
            found += [
                f"deleted topic {topic.name} is back"
                for topic in present.values()
                if topic.topic_id in self.promises.gone
            ]
            for name, promise in self.promises.topics.items():
                topic = present.get(name)
                if topic is None or topic.topic_id != promise.topic_id:
                    found.append(f"topic {name} is gone or another one: {topic}")
                elif len(topic.partitions) < promise.partitions:
                    found.append(f"topic {name} has {len(topic.partitions)} partitions")
                else:
                    await self._check_topic(client, name, promise, found)

    async def _check_topic(
        self, client: AsyncClient, name: str, promise: TopicPromise, found: list[str]
    ) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        configs = (await client.admin.describe_configs([resource]))[resource]
        for key, value in promise.configs.items():
            if configs[key].value != value:
                found.append(f"{name}: {key} is {configs[key].value}, not {value}")
        for number in range(promise.partitions):
            partition = TopicPartition(name, number)
            start = (await client.admin.list_offsets({partition: EARLIEST}))[partition].offset
            end = (await client.admin.list_offsets({partition: LATEST}))[partition].offset
            if start < promise.starts.get(number, 0):
                found.append(f"{partition}: deleted records are back: starts at {start}")
            batches = await batches_between(client, partition, start, end)
            found += [violation.message for violation in check_batches(batches)]
            seen = dict(records_in(batches))
            found += [
                f"{partition}: {value!r} at {offset} was never sent"
                for offset, value in seen.items()
                if value not in self.promises.sent
            ]
            found += [
                f"{partition}: {value!r} at {offset} is lost ([{start}, {end}) is there)"
                for offset, value in promise.records.get(number, {}).items()
                if offset >= start and seen.get(offset) != value
            ]
            if any(offset >= end for offset in promise.records.get(number, {})):
                found.append(f"{partition}: ends at {end}, below acknowledged records")
        await self._check_committed(client, name, promise, found)
        async with client.producer(ONE_AT_A_TIME) as producer:
            await producer.send_and_wait(name, b"after the crash", partition=0)

    async def _check_committed(
        self, client: AsyncClient, name: str, promise: TopicPromise, found: list[str]
    ) -> None:
        committed = await client.admin.committed_offsets(GROUP)
        held = committed.get(TopicPartition(name, 0))
        if (NOTHING if held is None else held.offset) not in (promise.committed or {NOTHING}):
            found.append(f"{name}: {held} is committed, not one of {promise.committed}")


class NodeScript:
    """One run. `skipped_sync_sites` takes single syncs away from the product."""

    def __init__(self, skipped_sync_sites: frozenset[str] = frozenset()) -> None:
        self.points: list[NodeCrashPoint] = []
        self.operations: list[Operation] = []
        self.promises = Promises()
        self.stage = Stage(1, None)
        self.stage.machine.disk.faults.skipped_sync_sites = set(skipped_sync_sites)
        self._number = 0

    def run(self) -> None:
        try:
            self.stage.loop.run(self._live())
        finally:
            self.stage.close()

    async def _live(self) -> None:
        await self._start()
        await self._as_client(self._create)
        await self._as_client(self._write)
        await self._as_client(self._configure)
        await self._kill_and_start()
        await self._as_client(self._write)
        await self._as_client(self._recreate)
        await self._stop_and_start()
        await self._as_client(self._write)
        self.stage.machine.crash(LOSE_EVERYTHING)
        await asyncio.sleep(0.1)
        await self._start()
        await self._as_client(self._write)
        assert await self.stage.machine.stop()

    async def _start(self) -> None:
        self.stage.machine.disk.observer = self._observe
        assert await self.stage.machine.start()

    async def _kill_and_start(self) -> None:
        self.stage.machine.crash(None)
        await asyncio.sleep(0.1)
        await self._start()

    async def _stop_and_start(self) -> None:
        assert await self.stage.machine.stop()
        await self._start()

    async def _as_client(self, act: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async def work() -> None:
            async with self.stage.host.client("script") as client:
                await act(client)

        await self.stage.loop.start(Process("client"), work())

    # Acts

    async def _create(self, client: AsyncClient) -> None:
        for name, configs in (("t", {"max.message.bytes": "5000"}), ("u", {})):
            await self._create_topic(client, name, configs)

    async def _create_topic(self, client: AsyncClient, name: str, configs: dict[str, str]) -> None:
        await client.admin.create_topics([NewTopic(name, 1, 1, configs)])
        topic = (await client.admin.describe_topics([name]))[name]
        self.promises.topics[name] = TopicPromise(topic.topic_id, 1, dict(configs))

    async def _write(self, client: AsyncClient) -> None:
        async with client.producer(ONE_AT_A_TIME) as producer:
            for name in PRODUCE_TO:
                for number in range(self.promises.topics[name].partitions):
                    for _ in range(2):
                        await self._send(producer.send_and_wait, name, number)
        await self._commit(client, PRODUCE_TO[0])

    async def _commit(self, client: AsyncClient, name: str) -> None:
        promise = self.promises.topics[name]
        offset = max(promise.records[0]) + 1
        promise.committed = (promise.committed or {NOTHING}) | {offset}
        await client.admin.alter_offsets(GROUP, {TopicPartition(name, 0): offset})
        promise.committed = {offset}

    async def _send(self, send: Callable[..., Awaitable[object]], name: str, number: int) -> None:
        self._number += 1
        value = b"%d" % self._number
        self.promises.sent.add(value)
        metadata = await send(name, value, partition=number)
        offset = metadata.offset  # type: ignore[attr-defined]  # RecordMetadata
        self.promises.topics[name].records.setdefault(number, {})[offset] = value

    async def _configure(self, client: AsyncClient) -> None:
        promise = self.promises.topics["t"]
        promise.configs.clear()
        change = ConfigChange("max.message.bytes", "7000")
        await client.admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, "t"): [change]})
        promise.configs["max.message.bytes"] = "7000"
        await client.admin.create_partitions({"t": 2})
        promise.partitions = 2
        await client.admin.delete_records({TopicPartition("t", 0): 1})
        promise.starts[0] = 1

    async def _recreate(self, client: AsyncClient) -> None:
        old = self.promises.topics.pop("t")
        await client.admin.delete_topics(["t"])
        self.promises.gone.add(old.topic_id)
        await self._create_topic(client, "t", {})
        await self._write(client)

    def _observe(self, operation: Operation) -> None:
        self.operations.append(operation)
        disk = self.stage.machine.disk.copy()
        self.points.append(NodeCrashPoint(operation, disk, self.promises.copy()))
