"""Brokers and their clients in one thread and virtual time, while everything goes wrong.

    producers, readers --simulated network--> brokers --simulated disks
                    ^                           ^              ^
      cut off, slow, connections break     kills, restarts   power cuts, full, slow
                                            wrong clocks

Each node has clients of its own, who write down what they did and saw in a history of its own;
the same seed and plan give the same histories. Nodes know nothing of each other yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from random import Random
from typing import Any

from headrace.client import NewTopic, ProducerSettings
from headrace.core.errors import HeadraceError
from tests.simulation.clients import TOPIC, VALUE_BYTES_MAX, ClientHost
from tests.simulation.disk import UNLIMITED_BYTES
from tests.simulation.faults import (
    CleanRestart,
    DropConnections,
    Fault,
    FaultPlan,
    FullDisk,
    Kill,
    LyingDisk,
    Partition,
    PowerCut,
    SlowDisk,
    SlowLink,
    WrongClock,
    client_host,
    node_host,
)
from tests.simulation.group_members import SESSION_MS, GroupProtocol, SimulatedGroup
from tests.simulation.inodes import Seeded, Survival
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import DATA_DIRECTORY, Machine
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.processes import Process
from tests.simulation.streams import Streams
from tests.support.group_checks import check_group
from tests.support.history import History
from tests.support.history_checks import Violation, check

IDEMPOTENT = ProducerSettings(acks="all", linger_ms=5, delivery_timeout_ms=20_000)
IMPATIENT = ProducerSettings(acks="all", linger_ms=5, delivery_timeout_ms=700)
LEADER_ONLY = ProducerSettings(acks=1, linger_ms=5, delivery_timeout_ms=20_000, in_flight_max=1)
PLAIN = ProducerSettings(acks="all", idempotence=False, delivery_timeout_ms=20_000, in_flight_max=1)
PRODUCERS = {
    "idempotent-1": IDEMPOTENT,
    "idempotent-2": IDEMPOTENT,
    "impatient": IMPATIENT,
    "leader-only": LEADER_ONLY,
    "plain": PLAIN,
}
RETRY_SECONDS = 0.5
START_SECONDS_MAX = 60
# Nobody listens there: clients must find the broker behind the other address.
NOWHERE = "nowhere:9092"


class Place:
    """One node: its machine, its clients, and what they saw."""

    def __init__(
        self,
        node: int,
        loop: VirtualLoop,
        network: SimulatedNetwork,
        streams: Streams,
        settings: Mapping[str, str],
    ) -> None:
        self.node = node
        host = node_host(node)
        self.machine = Machine(loop, network, streams, settings=settings, node_id=node, host=host)
        self.history = History()
        self.clients = ClientHost(
            loop, streams, self.history, (NOWHERE, self.machine.address), client_host(node)
        )
        # What its clients do; it ends some time after the last fault.
        self.work: list[asyncio.Task[None]] = []
        self.group: SimulatedGroup | None = None


class World:
    """One run: build it, `run` it, then judge `histories`. Without a plan the seed draws one."""

    def __init__(
        self,
        seed: int,
        plan: FaultPlan | None = None,
        *,
        nodes: int = 1,
        partitions: int = 2,
        flush_policy: str = "fsync",
        healed: Collection[int] | None = None,
        groups: GroupProtocol | None = None,
    ) -> None:
        """`healed` are the nodes that recover in the end (all): only they must be alive then.

        With `groups` the topic of each node is read by a group as well.
        """
        self.streams = Streams(seed)
        if plan is None:
            plan = FaultPlan.drawn(self.streams("faults"), nodes=nodes)
        self.plan = plan
        self.partitions = partitions
        self.flush_policy = flush_policy
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, self.streams("network"), Conditions())
        settings = {
            "log.flush.policy": flush_policy,
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(VALUE_BYTES_MAX + 100_000),
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "500",
            "group.consumer.min.session.timeout.ms": str(SESSION_MS),
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.min.heartbeat.interval.ms": "1000",
            "group.consumer.heartbeat.interval.ms": "1000",
        }
        self.places = {
            node: Place(node, self.loop, self.network, self.streams, settings)
            for node in range(1, nodes + 1)
        }
        if groups is not None:
            for place in self.places.values():
                place.group = SimulatedGroup(place.clients, groups, partitions)
        self.events: list[str] = []
        self._to_heal = set(self.places if healed is None else healed)
        self._is_healed = False
        self._background: list[asyncio.Task[None]] = []

    def __str__(self) -> str:
        """What is needed to run it again, and what happened."""
        happened = "\n".join(self.events)
        return (
            f"World({self.streams.seed}, nodes={len(self.places)}) with\n{self.plan}\n\n"
            f"what happened:\n{happened}"
        )

    @property
    def history(self) -> History:
        """Of the only node, or the first."""
        return self.places[1].history

    @property
    def machine(self) -> Machine:
        return self.places[1].machine

    @property
    def histories(self) -> list[History]:
        return [place.history for place in self.places.values()]

    def encode(self) -> bytes:
        """All that happened: equal bytes mean equal runs."""
        happened = "\n".join(self.events).encode()
        groups = [
            repr(place.group.history).encode() for place in self.places.values() if place.group
        ]
        histories = [history.encode() for history in self.histories]
        return b"\n\n".join([*histories, *groups, happened])

    def violations(self) -> list[Violation]:
        """All that is wrong with what the clients of the healed nodes saw; after `run`."""
        found: list[Violation] = []
        for place in self.places.values():
            found += check(place.history, flushed_before_ack=self.flush_policy == "fsync")
            if place.group is not None and place.node in self._to_heal:
                found += check_group(place.group.history)
        return found

    def run(self) -> History:
        """The whole story; raises what no client or broker should have let through."""
        try:
            self.loop.run(self._live())
            assert self.loop.failures == [], self.loop.failures
        finally:
            for place in self.places.values():
                place.machine.crash(None)
            self.loop.run(asyncio.sleep(1))
            self.loop.close()
        return self.history

    async def _live(self) -> None:
        for place in self.places.values():
            assert await place.machine.start()
            await self._as_client(place, "admin", self._create_topic(place))
        began = self.loop.time()
        end = began + self.plan.seconds
        for place in self.places.values():
            self._start_clients(place, end)
        for entry in self.plan.entries:
            await self._until(began + entry.at)
            self._note(str(entry))
            _APPLY[type(entry.fault)](self, entry.fault)
        await self._until(end)
        healed = [place for place in self.places.values() if place.node in self._to_heal]
        await self._heal(healed)
        for place in healed:
            alive = place.clients.prove_alive(self.partitions)
            await self._as_client(place, "alive", alive)
        for place in healed:
            for task in place.work:
                await task
        for task in self._background if len(healed) == len(self.places) else ():
            await task
        for place in healed:
            await self._as_client(place, "scan", place.clients.scan(self.partitions))
            if place.group is not None:
                ends = {scan.partition: scan.log_end_offset for scan in place.history.scans}
                await place.group.finish(ends)

    def _start_clients(self, place: Place, end: float) -> None:
        clients = place.clients
        for name, settings in PRODUCERS.items():
            producing = clients.produce(name, self.partitions, settings, end)
            place.work.append(self._as_client(place, name, producing))
        reading = clients.read(
            "reader", self.partitions, end, reads_are_final=self.flush_policy == "fsync"
        )
        place.work.append(self._as_client(place, "reader", reading))
        if place.group is not None:
            died = partial(self.network.process_died, power_cut=False)
            place.group.start(self.plan.seconds, died)

    def _as_client(
        self, place: Place, name: str, work: Coroutine[Any, Any, None]
    ) -> "asyncio.Task[None]":
        return self.loop.start(Process(name, place.clients.host), work)

    async def _until(self, time: float) -> None:
        await asyncio.sleep(max(0.0, time - self.loop.time()))

    async def _create_topic(self, place: Place) -> None:
        client = place.clients.client("admin")
        # Small segments, so that a short run rolls and recovers many of them.
        configs = {"internal.segment.bytes": "50000", "max.message.bytes": str(VALUE_BYTES_MAX)}
        await client.admin.create_topics([NewTopic(TOPIC, self.partitions, 1, configs)])
        await client.close()

    def _note(self, event: str) -> None:
        self.events.append(f"{self.loop.time():.3f} {event}")

    # Faults. Each takes effect at once and sees to its own end.

    def _kill(self, fault: Kill) -> None:
        self._crash(fault, None)

    def _cut_power(self, fault: PowerCut) -> None:
        self._crash(fault, Seeded(Random(fault.survival)))

    def _crash(self, fault: Kill | PowerCut, survival: Survival | None) -> None:
        """A machine that is down crashes at one of the first steps of its next start."""
        place = self.places[fault.node]

        def note() -> None:
            place.history.crashed(power_cut=survival is not None)
            self._note(f"crash node={place.node}")
            self._later(fault.down, partial(self._start, place))

        if fault.after:
            place.machine.crash_at_operation(fault.after, survival, note)
        elif not place.machine.is_down:
            note()
            place.machine.crash(survival)

    def _restart(self, fault: CleanRestart) -> None:
        async def restart(place: Place) -> None:
            if self._is_healed or not place.machine.is_up:
                return
            if await self._unless_full(place, place.machine.stop()):
                await asyncio.sleep(fault.down)
                await self._start(place)

        self._later(0.0, partial(restart, self.places[fault.node]))

    async def _start(self, place: Place) -> None:
        """Somebody else may have started it by now; a crash on the way sees to its next start."""
        if place.machine.is_down:
            self._note(f"start node={place.node}")
            if not await self._unless_full(place, place.machine.start()):
                self._note(f"crashed while starting node={place.node}")

    async def _unless_full(self, place: Place, step: Awaitable[bool]) -> bool:
        """Without space a broker need neither come up nor stop well; with space it must."""
        disk = place.machine.disk
        before = disk.faults.writes_without_space
        try:
            return await step
        except (HeadraceError, OSError) as error:
            if disk.faults.writes_without_space == before:
                raise
            self._note(f"failed: {error}")
            place.history.crashed(power_cut=False)
            place.machine.crash(None)
            self._later(RETRY_SECONDS, partial(self._start, place))
            return False

    def _drop_connections(self, fault: DropConnections) -> None:
        chance = Random(fault.draw)
        for transport in list(self.network.transports):
            if chance.random() < fault.share:
                self.network.drop(transport)

    def _partition(self, fault: Partition) -> None:
        self.network.partition(fault.a, fault.b, one_way=bool(fault.one_way))
        self.loop.call_later(fault.seconds, self.network.heal, fault.a, fault.b)

    def _slow_link(self, fault: SlowLink) -> None:
        self.network.link(fault.a, fault.b).delay_seconds = fault.delay
        self.loop.call_later(fault.seconds, self.network.heal, fault.a, fault.b)

    def _set_clock(self, fault: WrongClock) -> None:
        clock = self.places[fault.node].machine.clock
        clock.skew_ms = fault.skew_ms
        clock.drift(1 + fault.drift_ppm / 1e6)

    def _slow_disk(self, fault: SlowDisk) -> None:
        self.places[fault.node].machine.set_sync_delay(fault.sync_seconds)

    def _fill_disk(self, fault: FullDisk) -> None:
        disk = self.places[fault.node].machine.disk
        used = disk.faults.capacity_bytes - disk.space("/")[1]
        disk.faults.capacity_bytes = used + fault.room_bytes
        self.loop.call_later(fault.seconds, self._empty_disk, self.places[fault.node])

    def _empty_disk(self, place: Place) -> None:
        place.machine.disk.faults.capacity_bytes = UNLIMITED_BYTES

    def _lie(self, fault: LyingDisk) -> None:
        disk = self.places[fault.node].machine.disk
        disk.faults.ignore_syncs_below = f"{DATA_DIRECTORY}/{TOPIC}-"

    def _later(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Not in the process in which it was decided, which may be dead by then."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await work()

        self._background.append(self.loop.create_task(wait(), context=self.network.context))

    async def _heal(self, places: Collection[Place]) -> None:
        """Nothing goes wrong with these from here on; the others stay as they are."""
        self._is_healed = True
        for place in places:
            self.network.heal(place.clients.host, place.machine.host)
            self._empty_disk(place)
            place.machine.disk.observer = None
            place.machine.set_sync_delay(0.001)
        async with asyncio.timeout(START_SECONDS_MAX):
            for place in places:
                while not place.machine.is_up:
                    await self._start(place)
                    await asyncio.sleep(0.01)
        self._note("healed")


_APPLY: Mapping[type[Fault], Callable[[World, Any], None]] = {
    Kill: World._kill,
    PowerCut: World._cut_power,
    CleanRestart: World._restart,
    DropConnections: World._drop_connections,
    SlowDisk: World._slow_disk,
    FullDisk: World._fill_disk,
    Partition: World._partition,
    SlowLink: World._slow_link,
    WrongClock: World._set_clock,
    LyingDisk: World._lie,
}
