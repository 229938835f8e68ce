"""A broker and its clients in one thread and virtual time, while everything goes wrong.

    producers, readers --simulated network--> broker --simulated disk
                    ^                           ^              ^
                 breaks connections       kills, restarts   cuts the power, fills up, slows down

Everything clients did and saw is in `history`; the same seed and plan give the same history.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
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
    PowerCut,
    SlowDisk,
)
from tests.simulation.inodes import Seeded, Survival
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import DATA_DIRECTORY, Machine
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.processes import Process
from tests.simulation.streams import Streams
from tests.support.history import History

IDEMPOTENT = ProducerSettings(acks="all", linger_ms=5, delivery_timeout_ms=20_000)
IMPATIENT = ProducerSettings(acks="all", linger_ms=5, delivery_timeout_ms=700)
LEADER_ONLY = ProducerSettings(acks=1, linger_ms=5, delivery_timeout_ms=20_000, in_flight_max=1)
PLAIN = ProducerSettings(acks="all", idempotence=False, delivery_timeout_ms=20_000, in_flight_max=1)
RETRY_SECONDS = 0.5
START_SECONDS_MAX = 60


class World:
    """One run: build it, `run` it, then judge `history`. Without a plan the seed draws one."""

    def __init__(
        self,
        seed: int,
        plan: FaultPlan | None = None,
        *,
        partitions: int = 2,
        flush_policy: str = "fsync",
    ) -> None:
        self.streams = Streams(seed)
        self.plan = FaultPlan.drawn(self.streams("faults")) if plan is None else plan
        self.partitions = partitions
        self.history = History()
        self._flushed_before_ack = flush_policy == "fsync"
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, self.streams("network"), Conditions())
        self.machine = Machine(
            self.loop,
            self.network,
            self.streams,
            settings={
                "log.flush.policy": flush_policy,
                "auto.create.topics.enable": "false",
                "message.max.bytes": str(VALUE_BYTES_MAX + 100_000),
            },
        )
        self.clients = ClientHost(self.loop, self.streams, self.history)
        self.events: list[str] = []
        self._healed = False
        self._background: list[asyncio.Task[None]] = []

    def __str__(self) -> str:
        """What is needed to run it again, and what happened."""
        happened = "\n".join(self.events)
        return f"World({self.streams.seed}) with\n{self.plan}\n\nwhat happened:\n{happened}"

    def run(self) -> History:
        """The whole story; raises what no client or broker should have let through."""
        try:
            self.loop.run(self._live())
            assert self.loop.failures == [], self.loop.failures
        finally:
            self.machine.crash(None)
            self.loop.run(asyncio.sleep(1))
            self.loop.close()
        return self.history

    async def _live(self) -> None:
        assert await self.machine.start()
        await self._in_process("admin", self._create_topic())
        began = self.loop.time()
        end = began + self.plan.seconds
        work = [
            self._in_process(name, self.clients.produce(name, self.partitions, settings, end))
            for name, settings in (
                ("idempotent-1", IDEMPOTENT),
                ("idempotent-2", IDEMPOTENT),
                ("impatient", IMPATIENT),
                ("leader-only", LEADER_ONLY),
                ("plain", PLAIN),
            )
        ]
        reading = self.clients.read(
            "reader", self.partitions, end, reads_are_final=self._flushed_before_ack
        )
        work.append(self._in_process("reader", reading))
        for entry in self.plan.entries:
            await self._until(began + entry.at)
            self._note(str(entry))
            _APPLY[type(entry.fault)](self, entry.fault)
        await self._until(end)
        await self._heal()
        await self._in_process("alive", self.clients.prove_alive(self.partitions))
        for task in (*work, *self._background):
            await task
        await self._in_process("scan", self.clients.scan(self.partitions))

    def _in_process(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self.loop.start(Process(name), work)

    async def _until(self, time: float) -> None:
        await asyncio.sleep(max(0.0, time - self.loop.time()))

    async def _create_topic(self) -> None:
        client = self.clients.client("admin")
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
        machine = self.machine

        def note() -> None:
            self.history.crashed(power_cut=survival is not None)
            self._note("crash")
            self._later(fault.down, self._start(machine))

        if fault.after:
            machine.crash_at_operation(fault.after, survival, note)
        elif not machine.is_down:
            note()
            machine.crash(survival)

    def _restart(self, fault: CleanRestart) -> None:
        async def restart(machine: Machine) -> None:
            if self._healed or not machine.is_up:
                return
            if await self._unless_full(machine, machine.stop()):
                await asyncio.sleep(fault.down)
                await self._start(machine)

        self._later(0.0, restart(self.machine))

    async def _start(self, machine: Machine) -> None:
        """Somebody else may have started it by now; a crash on the way sees to its next start."""
        if machine.is_down:
            self._note("start")
            if not await self._unless_full(machine, machine.start()):
                self._note("crashed while starting")

    async def _unless_full(self, machine: Machine, step: Awaitable[bool]) -> bool:
        """Without space a broker need neither come up nor stop well; with space it must."""
        before = machine.disk.faults.writes_without_space
        try:
            return await step
        except (HeadraceError, OSError) as error:
            if machine.disk.faults.writes_without_space == before:
                raise
            self._note(f"failed: {error}")
            self.history.crashed(power_cut=False)
            machine.crash(None)
            self._later(RETRY_SECONDS, self._start(machine))
            return False

    def _drop_connections(self, fault: DropConnections) -> None:
        chance = Random(fault.draw)
        for transport in list(self.network.transports):
            if chance.random() < fault.share:
                self.network.drop(transport)

    def _slow_down(self, fault: SlowDisk) -> None:
        self.machine.set_sync_delay(fault.sync_seconds)

    def _fill_disk(self, fault: FullDisk) -> None:
        disk = self.machine.disk.faults
        used = disk.capacity_bytes - self.machine.disk.space("/")[1]
        disk.capacity_bytes = used + fault.room_bytes
        self.loop.call_later(fault.seconds, self._empty_disk)

    def _empty_disk(self) -> None:
        self.machine.disk.faults.capacity_bytes = UNLIMITED_BYTES

    def _lie(self, _fault: LyingDisk) -> None:
        self.machine.disk.faults.ignore_syncs_below = f"{DATA_DIRECTORY}/{TOPIC}-"

    def _later(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Not in the process in which it was decided, which may be dead by then."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await work

        context = self.network.context
        self._background.append(self.loop.create_task(wait(), context=context))

    async def _heal(self) -> None:
        """Nothing goes wrong from here on."""
        self._healed = True
        self._empty_disk()
        self.machine.disk.observer = None
        self.machine.set_sync_delay(0.001)
        async with asyncio.timeout(START_SECONDS_MAX):
            while not self.machine.is_up:
                await self._start(self.machine)
                await asyncio.sleep(0.01)
        self._note("healed")


_APPLY: Mapping[type[Fault], Callable[[World, Any], None]] = {
    Kill: World._kill,
    PowerCut: World._cut_power,
    CleanRestart: World._restart,
    DropConnections: World._drop_connections,
    SlowDisk: World._slow_down,
    FullDisk: World._fill_disk,
    LyingDisk: World._lie,
}
