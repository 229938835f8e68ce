"""The pure simulator's network loses, doubles and reorders; its logs forget what is not flushed."""

from functools import partial
from typing import Any

from tests.simulation.faults import Entry, FaultPlan, Kill, Partition, PowerCut, WrongClock
from tests.simulation.pure.kernel import Kernel, NodeContext


class Recorder:
    """Notes what it is told."""

    def __init__(self, node: NodeContext) -> None:
        self.received: list[Any] = []
        self.ticks: list[float] = []
        self.flushes: list[int] = []
        self._node = node

    def receive(self, _source: str, message: Any) -> None:
        self.received.append(message)

    def tick(self) -> None:
        self.ticks.append(self._node.now_ms)

    def flushed(self, end: int) -> None:
        self.flushes.append(end)


def started(kernel: Kernel, name: str) -> tuple[NodeContext, Recorder]:
    node = kernel.host(name)
    recorder = Recorder(node)
    node.start(recorder)
    return node, recorder


def test_messages_are_lost_doubled_and_reordered() -> None:
    kernel = Kernel(1, FaultPlan())
    node, _ = started(kernel, "node-1")
    _, recorder = started(kernel, "node-2")
    for number in range(500):
        kernel.at(number * 10, partial(node.send, "node-2", number))
    kernel.run_until(10_000)
    received = recorder.received
    assert set(received) < set(range(500))
    assert len(received) > len(set(received))
    assert received != sorted(received)
    kernel.heal()
    del received[:]
    for number in range(500):
        kernel.at(20_000 + number * 10, partial(node.send, "node-2", number))
    kernel.run_until(30_000)
    assert received == list(range(500))


def test_nothing_passes_a_partition_in_its_direction() -> None:
    plan = FaultPlan(10.0, (Entry(1.0, Partition("node-1", "node-2", 1, 2.0)),))
    kernel = Kernel(1, plan)
    a, from_b = started(kernel, "node-1")
    b, from_a = started(kernel, "node-2")
    kernel.conditions.lost = kernel.conditions.doubled = 0.0
    for at in (500, 2000, 4000):
        kernel.at(at, partial(a.send, "node-2", at))
        kernel.at(at, partial(b.send, "node-1", at))
    kernel.run_until(10_000)
    assert from_a.received == [500, 4000]
    assert from_b.received == [500, 2000, 4000]


def test_a_power_cut_takes_what_was_not_flushed_and_a_kill_does_not() -> None:
    for fault, left in ((Kill(1, 0, 1.0), 5), (PowerCut(1, 0, 1.0, 3), None)):
        kernel = Kernel(1, FaultPlan(10.0, (Entry(1.0, fault),)))
        node, recorder = started(kernel, "node-1")
        node.append(["a", "b"])
        kernel.run_until(500)
        assert recorder.flushes == [2]
        node.sync_ms_max = 1e9
        node.append(["c", "d", "e"])
        kernel.run_until(2000)
        assert not node.is_up
        assert node.log.flushed == 2
        if left is None:
            assert node.log.entries[:2] == ["a", "b"]
            assert 2 <= node.log.end < 5
        else:
            assert node.log.end == left


def test_a_dead_node_hears_nothing_and_its_timers_are_gone() -> None:
    kernel = Kernel(1, FaultPlan(10.0, (Entry(1.0, Kill(1, 0, 1.0)),)))
    node, recorder = started(kernel, "node-1")
    node.wake_at(500)
    kernel.at(900, lambda: node.wake_at(5000))
    kernel.at(2000, lambda: kernel.send("client", "node-1", "hello"))
    kernel.run_until(10_000)
    assert len(recorder.ticks) == 1
    assert recorder.received == []


def test_timers_go_by_the_clock_of_the_node() -> None:
    plan = FaultPlan(10.0, (Entry(0.0, WrongClock(1, 60_000, 100_000)),))
    kernel = Kernel(1, plan)
    kernel.run_until(0)
    node, recorder = started(kernel, "node-1")
    node.wake_at(1100)
    kernel.run_until(999)
    assert recorder.ticks == []
    kernel.run_until(1002)
    assert recorder.ticks == [1101]
    other, _ = started(kernel, "node-2")
    assert node.time_ms - other.time_ms > 60_000
