"""A broker and its clients in one thread and virtual time, under a storm drawn from a seed.

    producers, readers --simulated network--> broker --simulated disk
                    ^                           ^              ^
                 breaks connections       kills, restarts   cuts the power, fills up, slows down

Everything clients did and saw is in `history`; the same seed gives the same history.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.client import NewTopic, ProducerSettings
from tests.simulation.clients import TOPIC, VALUE_BYTES_MAX, ClientHost
from tests.simulation.inodes import Seeded
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import DATA_DIRECTORY, Machine
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.processes import Process
from tests.support.history import History

IDEMPOTENT = ProducerSettings(acks="all", linger_ms=5, delivery_timeout_ms=20_000)
IMPATIENT = ProducerSettings(acks="all", linger_ms=5, delivery_timeout_ms=700)
LEADER_ONLY = ProducerSettings(acks=1, linger_ms=5, delivery_timeout_ms=20_000, in_flight_max=1)
PLAIN = ProducerSettings(acks="all", idempotence=False, delivery_timeout_ms=20_000, in_flight_max=1)


@dataclass(frozen=True, slots=True)
class Storm:
    """What may go wrong, and for how long."""

    seconds: float = 15.0
    kills: bool = True
    power_cuts: bool = True
    dropped_connections: bool = True
    clean_restarts: bool = True
    slow_disk: bool = True
    full_disk: bool = True
    lying_disk: bool = False  # about the topic's data, so that the topic itself survives


class World:
    """One run: build it, `run` it, then judge `history`."""

    def __init__(
        self,
        seed: int,
        storm: Storm | None = None,
        *,
        partitions: int = 2,
        flush_policy: str = "fsync",
    ) -> None:
        self.random = Random(seed)
        self.storm = storm or Storm()
        self.partitions = partitions
        self.history = History()
        self._flushed_before_ack = flush_policy == "fsync"
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, self.random, Conditions())
        self.machine = Machine(
            self.loop,
            self.network,
            self.random,
            settings={
                "log.flush.policy": flush_policy,
                "auto.create.topics.enable": "false",
                "message.max.bytes": str(VALUE_BYTES_MAX + 100_000),
            },
        )
        if self.storm.lying_disk:
            self.machine.disk.faults.lies_below = f"{DATA_DIRECTORY}/{TOPIC}-"
        self.clients = ClientHost(self.loop, self.random, self.history)
        self.events: list[str] = []

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
        end = self.loop.time() + self.storm.seconds
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
        nemesis = asyncio.get_running_loop().create_task(self._storm(end))
        await nemesis
        await self._heal()
        await self._in_process("alive", self.clients.prove_alive(self.partitions))
        for task in work:
            await task
        await self._in_process("scan", self.clients.scan(self.partitions))

    def _in_process(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self.loop.start(Process(name), work)

    async def _create_topic(self) -> None:
        client = self.clients.client("admin")
        # Small segments, so that a short run rolls and recovers many of them.
        configs = {"internal.segment.bytes": "50000", "max.message.bytes": str(VALUE_BYTES_MAX)}
        await client.admin.create_topics([NewTopic(TOPIC, self.partitions, 1, configs)])
        await client.close()

    # The storm

    async def _storm(self, end: float) -> None:
        while self.loop.time() < end:
            await asyncio.sleep(self.random.random() * 1.5)
            if not self.machine.is_up:
                await self._restart()
                continue
            choices = [name for name in _MISFORTUNES if getattr(self.storm, name)]
            if not choices:
                continue
            name = self.random.choice(choices)
            self._tell(name)
            await _MISFORTUNES[name](self)

    async def _restart(self) -> None:
        self._tell("start")
        while not await self.machine.start():
            self._tell("crashed while starting")

    def _tell(self, event: str) -> None:
        self.events.append(f"{self.loop.time():.3f} {event}")

    async def _kill(self) -> None:
        self._crash(power_cut=False)

    async def _cut_power(self) -> None:
        self._crash(power_cut=True)

    def _crash(self, *, power_cut: bool) -> None:
        """At once, or in the middle of one of the next steps on the disk."""
        survival = Seeded(self.random) if power_cut else None

        def note() -> None:
            self.history.crashed(power_cut=power_cut)
            self._tell("crash")

        if self.random.random() < 0.3:
            note()
            self.machine.crash(survival)
        else:
            self.machine.crash_at_operation(self.random.randint(1, 60), survival, note)

    async def _drop_connections(self) -> None:
        for transport in list(self.network.transports):
            if self.random.random() < 0.5:
                self.network.drop(transport)

    async def _clean_restart(self) -> None:
        if await self.machine.stop():
            await self._restart()

    async def _slow_down(self) -> None:
        self.machine.take_for_a_sync(self.random.choice((0.001, 0.01, 0.2)))

    async def _fill_disk(self) -> None:
        faults = self.machine.disk.faults
        used = faults.capacity_bytes - self.machine.disk.space("/")[1]
        faults.capacity_bytes = used + self.random.randint(0, 20_000)
        await asyncio.sleep(self.random.random() * 2)
        faults.capacity_bytes = 1 << 40

    async def _heal(self) -> None:
        """Nothing goes wrong from here on."""
        self.machine.disk.observer = lambda _operation: None
        self.machine.take_for_a_sync(0.001)
        if not self.machine.is_up:
            await self._restart()
        self._tell("healed")


_MISFORTUNES = {
    "kills": World._kill,
    "power_cuts": World._cut_power,
    "dropped_connections": World._drop_connections,
    "clean_restarts": World._clean_restart,
    "slow_disk": World._slow_down,
    "full_disk": World._fill_disk,
}
