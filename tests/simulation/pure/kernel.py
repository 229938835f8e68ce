"""Time, messages, logs and deaths for pure machines; everything follows from a seed and a plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

from tests.simulation.faults import (
    CleanRestart,
    FaultPlan,
    Kill,
    Partition,
    PowerCut,
    SlowDisk,
    SlowLink,
    WrongClock,
    node_host,
)
from tests.simulation.streams import Streams

EPOCH_MS = 1_750_000_000_000
EVENTS_MAX = 200_000
# A plan counts steps on the disk of a whole node.
STEPS_PER_APPEND = 10


@dataclass(slots=True)
class Clock:
    """A machine's clocks: may be set wrong, run fast or slow."""

    skew_ms: int = 0
    rate: float = 1.0
    since: tuple[float, float] = (0.0, 0.0)  # true time and this clock's

    def at(self, now_ms: float) -> int:
        then, mine = self.since
        return int(mine + (now_ms - then) * self.rate)

    def set(self, now_ms: float, skew_ms: int, rate: float) -> None:
        self.since = now_ms, float(self.at(now_ms))
        self.skew_ms, self.rate = skew_ms, rate

    def true_delay(self, ms: float) -> float:
        """How long it takes until this clock has gone on by so much."""
        return ms / self.rate


@dataclass(slots=True)
class Log:
    """What a node has written; a power cut takes what was not flushed, or part of it."""

    entries: list[Any] = field(default_factory=list)
    flushed: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    def truncate(self, end: int) -> None:
        del self.entries[end:]
        self.flushed = min(self.flushed, end)


class Program(Protocol):
    """A pure machine and what drives it, from a start of its node to its death."""

    def receive(self, source: str, message: Any) -> None:
        """A message has come: late, twice, before an earlier one, or never."""
        ...

    def tick(self) -> None:
        """A time that was asked for has come."""
        ...

    def flushed(self, end: int) -> None:
        """The node's log is safe up to there."""
        ...


class NodeContext:
    """All that a program has of the world."""

    def __init__(self, kernel: "Kernel", host: str) -> None:
        self.host = host
        self.log = Log()
        self.clock = Clock()
        self.random: Random = kernel.streams(host)
        self.program: Program | None = None
        self.newest_seen: dict[str, int] = {}
        """By source, for programs whose messages are numbered; outlives them."""
        self.calls_made = 0
        self.crash_after: tuple[int, Callable[[], None]] | None = None
        self.sync_ms_max = 30.0
        self._kernel = kernel
        self._life = 0
        self._wake_at: float | None = None
        self._is_flushing = False

    @property
    def now_ms(self) -> int:
        """Monotonic."""
        return self.clock.at(self._kernel.now_ms)

    @property
    def true_time(self) -> int:
        """For histories: in microseconds, the same for all, and unknown to programs."""
        return int(self._kernel.now_ms * 1000)

    @property
    def time_ms(self) -> int:
        return EPOCH_MS + self.clock.skew_ms + self.now_ms

    @property
    def is_up(self) -> bool:
        return self.program is not None

    def send(self, target: str, message: Any) -> None:
        self._kernel.send(self.host, target, message)

    def append(self, entries: list[Any]) -> int:
        """Write, and have it flushed soon; returns the end of the log."""
        self.log.entries += entries
        self._flush_soon()
        if self.crash_after is not None:
            appends, crash = self.crash_after
            if appends > 0:
                self.crash_after = appends - 1, crash
            else:  # in the middle of the flush, more often than not
                self.crash_after = None
                self.after(self._kernel.disk.random() * self.sync_ms_max, crash)
        return self.log.end

    def _flush_soon(self) -> None:
        if self._is_flushing or self.log.flushed == self.log.end:
            return
        self._is_flushing = True
        covered = self.log.end
        delay = self._kernel.disk.random() * self.sync_ms_max
        self.after(delay, partial(self._flush_ended, covered))

    def _flush_ended(self, covered: int) -> None:
        self._is_flushing = False
        self.log.flushed = max(self.log.flushed, min(covered, self.log.end))
        assert self.program is not None
        self.program.flushed(self.log.flushed)
        self._flush_soon()

    def wake_at(self, now_ms: float) -> None:
        """`tick` at this monotonic time, or before."""
        if self._wake_at is not None and self._wake_at <= now_ms:
            return
        self._wake_at = now_ms
        delay = self.clock.true_delay(max(0.0, now_ms - self.now_ms))
        self.after(delay + 1, partial(self._woken, now_ms))

    def _woken(self, at: float) -> None:
        if self._wake_at == at:
            self._wake_at = None
            assert self.program is not None
            self.program.tick()

    def after(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Unless the node has died by then."""
        life = self._life

        def run() -> None:
            if self._life == life and self.program is not None:
                call()

        self._kernel.at(self._kernel.now_ms + delay_ms, run)

    def start(self, program: Program) -> None:
        self.program = program
        self._flush_soon()

    def die(self) -> None:
        self._life += 1
        self.crash_after = None
        self.program, self._wake_at, self._is_flushing = None, None, False


@dataclass(slots=True)
class NetworkConditions:
    delay_ms_max: float = 5.0
    lost: float = 0.03
    doubled: float = 0.03
    late: float = 0.05  # and so behind later ones
    late_ms_max: float = 400.0


class Kernel:
    """The queue of what happens; hosts that are no node (clients) have contexts as well."""

    def __init__(self, seed: int, plan: FaultPlan) -> None:
        self.streams = Streams(seed)
        self.plan = plan
        self.now_ms = 0.0
        self.hosts: dict[str, NodeContext] = {}
        self.disk = self.streams("disk")
        self.conditions = NetworkConditions()
        self.events: list[str] = []
        self.on_death: Callable[[NodeContext, float], None] = lambda _node, _down: None
        self._network = self.streams("network")
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._queued = 0
        self._blocked: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        for entry in plan.entries:
            apply = _APPLY.get(type(entry.fault))
            if apply is not None:
                self.at(entry.at * 1000, partial(self._apply, entry, apply))

    def host(self, name: str) -> NodeContext:
        context = self.hosts.get(name)
        if context is None:
            context = self.hosts[name] = NodeContext(self, name)
        return context

    def at(self, now_ms: float, call: Callable[[], object]) -> None:
        self._queued += 1
        heappush(self._queue, (now_ms, self._queued, call))

    def run_until(self, end_ms: float) -> None:
        queue, steps = self._queue, 0
        while queue and queue[0][0] <= end_ms:
            self.now_ms, _, call = heappop(queue)
            call()
            steps += 1
            assert steps < EVENTS_MAX, "it does not come to an end"
        self.now_ms = end_ms

    def note(self, event: str) -> None:
        self.events.append(f"{self.now_ms / 1000:.3f} {event}")

    def send(self, source: str, target: str, message: Any) -> None:
        random, conditions = self._network, self.conditions
        way = source, target
        copies = 1
        chance = random.random()
        if chance < conditions.lost or way in self._blocked:
            return
        if chance < conditions.lost + conditions.doubled:
            copies = 2
        for _ in range(copies):
            delay = random.random() * conditions.delay_ms_max + self._slow.get(way, 0.0)
            if random.random() < conditions.late:
                delay += random.random() * conditions.late_ms_max
            self.at(self.now_ms + delay, partial(self._deliver, source, target, message))

    def _deliver(self, source: str, target: str, message: Any) -> None:
        program = self.host(target).program
        if program is not None and (source, target) not in self._blocked:
            program.receive(source, message)

    def heal(self) -> None:
        """Nothing goes wrong from here on; who is dead is for others to start."""
        self.conditions = NetworkConditions(lost=0.0, doubled=0.0, late=0.0)
        self._blocked.clear()
        self._slow.clear()
        for host in self.hosts.values():
            host.sync_ms_max = 1.0
            host.crash_after = None
        self.note("healed")

    # Faults

    def _apply(self, entry: Any, apply: Callable[["Kernel", Any], None]) -> None:
        self.note(str(entry))
        apply(self, entry.fault)

    def crash(self, node: NodeContext, down: float, survival: int | None) -> None:
        """With `survival` a power cut: of what was not flushed some first part is left."""
        if node.program is None:
            return
        node.die()
        if survival is not None:
            left = Random(survival).randint(node.log.flushed, node.log.end)
            node.log.truncate(left)
        self.on_death(node, down)

    def _crash_node(self, fault: Kill | PowerCut | CleanRestart) -> None:
        node = self.host(node_host(fault.node))
        survival = fault.survival if isinstance(fault, PowerCut) else None
        crash = partial(self.crash, node, fault.down, survival)
        if isinstance(fault, CleanRestart) or not fault.after:
            crash()
        else:
            node.crash_after = fault.after // STEPS_PER_APPEND, crash

    def _partition(self, fault: Partition) -> None:
        ways = [(fault.a, fault.b)] if fault.one_way else [(fault.a, fault.b), (fault.b, fault.a)]
        self._blocked.update(ways)
        self.at(self.now_ms + fault.seconds * 1000, lambda: self._blocked.difference_update(ways))

    def _slow_link(self, fault: SlowLink) -> None:
        way = fault.a, fault.b
        self._slow[way] = fault.delay * 1000
        self.at(self.now_ms + fault.seconds * 1000, partial(self._slow.pop, way, None))

    def _set_clock(self, fault: WrongClock) -> None:
        clock = self.host(node_host(fault.node)).clock
        clock.set(self.now_ms, fault.skew_ms, 1 + fault.drift_ppm / 1e6)

    def _slow_disk(self, fault: SlowDisk) -> None:
        self.host(node_host(fault.node)).sync_ms_max = fault.sync_seconds * 1000


# What has no meaning here (a full disk, connections) is left out.
_APPLY: Mapping[type, Callable[[Kernel, Any], None]] = {
    Kill: Kernel._crash_node,
    PowerCut: Kernel._crash_node,
    CleanRestart: Kernel._crash_node,
    Partition: Kernel._partition,
    SlowLink: Kernel._slow_link,
    WrongClock: Kernel._set_clock,
    SlowDisk: Kernel._slow_disk,
}
