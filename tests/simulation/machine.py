"""One simulated machine: its disk, and the broker process that runs on it, dies and comes back."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from headrace.core.broker_configs import BrokerConfig
from headrace.node.node import Node
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import Survival
from tests.simulation.lockstep import LockstepExecutor
from tests.simulation.loop import SeededRandomness, SimulatedClock, VirtualLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.processes import LOCALHOST, Process, ProcessDied
from tests.simulation.streams import Streams

DATA_DIRECTORY = "/data"
PORT = 9092


class Machine:
    """Runs at most one broker at a time; `crash` may strike between any two steps of it."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: SimulatedNetwork,
        streams: Streams,
        *,
        settings: Mapping[str, str],
        node_id: int = 1,
        host: str = LOCALHOST,
        disk: SimulatedFileSystem | None = None,
    ) -> None:
        self.host = host
        self.address = f"{host}:{PORT}"
        self.clock = SimulatedClock(loop)
        self._randomness = SeededRandomness(streams(f"node-{node_id}"))
        self._worker_delays = streams(f"disk-{node_id}")
        self.disk = disk or new_disk(self.clock.now_ms)
        self._sync_seconds_max = 0.01
        self.node: Node | None = None
        self._loop = loop
        self._network = network
        self._config = BrokerConfig.from_static(
            {
                "log.dirs": DATA_DIRECTORY,
                "listeners": f"PLAINTEXT://{self.address}",
                "node.id": str(node_id),
                **settings,
            }
        )
        self._process: Process | None = None
        self._executor: LockstepExecutor | None = None
        self._crashed: asyncio.Future[None] = loop.create_future()
        self.starts = 0

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def is_down(self) -> bool:
        """Neither up nor on its way up or down."""
        return self._process is None

    def set_sync_delay(self, seconds_max: float) -> None:
        """From now on every sync takes up to that long."""
        self._sync_seconds_max = seconds_max
        if self._executor is not None:
            self._executor.delay_seconds_max = seconds_max

    async def start(self) -> bool:
        """Start the broker; False if it crashed before it was up."""
        assert self._process is None
        self.starts += 1
        process = self._process = Process(f"broker-{self.starts}", self.host)
        self._crashed = self._loop.create_future()
        self._network.power_on(process.host)
        executor = LockstepExecutor(
            self._loop, self._worker_delays, self.disk, self._sync_seconds_max
        )
        self._executor = executor
        starting = self._loop.start(process, self._serve(executor))
        await _first_of(starting, self._crashed)
        if self._process is not process:
            return False
        self.node = starting.result()
        return True

    async def _serve(self, executor: LockstepExecutor) -> Node:
        node = Node(
            self._config,
            files=self.disk,
            clock=self.clock,
            randomness=self._randomness,
            executor=executor,
        )
        await node.start()
        return node

    async def stop(self) -> bool:
        """Stop the broker in good order; False if it crashed on the way."""
        assert self.node is not None
        assert self._process is not None
        process, node, self.node = self._process, self.node, None
        stopping = self._loop.start(process, node.stop())
        await _first_of(stopping, self._crashed)
        if self._process is not process:
            return False
        stopping.result()
        self._process = None
        self.disk = self.disk.after_kill()
        return True

    def crash(self, survival: Survival | None) -> None:
        """End the process now: a kill, or with `survival` a power cut."""
        process = self._process
        if process is None:
            return
        process.alive = False
        self._process = self.node = None
        self.disk = self.disk.after_kill() if survival is None else self._after_cut(survival)
        executor, self._executor = self._executor, None
        crashed = self._crashed

        def bury() -> None:
            assert executor is not None
            executor.kill()
            self._network.process_died(process, power_cut=survival is not None)
            if not crashed.done():
                crashed.set_result(None)

        # Later, because the crash may come from within a worker of that process.
        self._loop.call_soon(bury, context=self._network.context)

    def _after_cut(self, survival: Survival) -> SimulatedFileSystem:
        return self.disk.after_power_cut(survival)

    def crash_at_operation(
        self, after: int, survival: Survival | None, note: Callable[[], None]
    ) -> None:
        """Crash in the middle of things: right after that many further steps on the disk."""
        at = self.disk.operations_done + after

        def observe(operation: Operation) -> None:
            if operation.number >= at and self._process is not None:
                note()
                self.crash(survival)
                raise ProcessDied

        self.disk.observer = observe


def new_disk(now_ms: Callable[[], int]) -> SimulatedFileSystem:
    """An empty disk with a data directory that is there for good."""
    disk = SimulatedFileSystem(now_ms, keeps_operations=False)
    disk.make_directory(DATA_DIRECTORY)
    disk.sync_everything()
    disk.operations_done = 0
    return disk


async def _first_of(*futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
