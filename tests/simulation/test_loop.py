"""The virtual loop, its network and its executor do what the real ones do, and faster."""

import asyncio
from collections.abc import Iterator
from random import Random
from time import perf_counter

import pytest

from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.simulation.lockstep import LockstepExecutor
from tests.simulation.loop import (
    Deadlock,
    SeededRandomness,
    SimulatedClock,
    SimulatedExecutor,
    VirtualLoop,
)
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.processes import LOCALHOST, Process

HOST = LOCALHOST


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    virtual = VirtualLoop()
    yield virtual
    virtual.close()
    assert virtual.failures == []


class Recorder(asyncio.Protocol):
    """Collects what it is told."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.pieces = 0
        self.ended = False
        self.lost: list[Exception | None] = []
        self.can_write = True
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces += 1

    def eof_received(self) -> bool | None:
        self.ended = True
        return None

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class BufferedRecorder(asyncio.BufferedProtocol):
    """Receives into a small buffer of its own."""

    def __init__(self) -> None:
        self.received = bytearray()
        self._buffer = bytearray(7)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - of the interface
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]


async def connected(network: SimulatedNetwork) -> tuple[Recorder, Recorder]:
    """Both ends of a new connection."""
    far_ends: list[Recorder] = []

    def accept() -> Recorder:
        far_ends.append(Recorder())
        return far_ends[-1]

    loop = network.loop
    server = await loop.create_server(accept, HOST, 0)
    port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # of the simulation
    _, near = await loop.create_connection(Recorder, HOST, port)
    server.close()
    assert isinstance(near, Recorder)
    return near, far_ends[0]


def network_on(loop: VirtualLoop, seed: int = 1, **conditions: float) -> SimulatedNetwork:
    return SimulatedNetwork(loop, Random(seed), Conditions(**conditions))  # type: ignore[arg-type]  # ints are floats


def test_an_hour_passes_at_once(loop: VirtualLoop) -> None:
    started = perf_counter()
    loop.run(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(3600)
    assert perf_counter() - started < 5


def test_timers_fire_in_order_of_their_time(loop: VirtualLoop) -> None:
    seen: list[int] = []
    for delay in (5, 1, 3, 2, 4):
        loop.call_later(delay, seen.append, delay)
    loop.call_later(2.5, lambda: None).cancel()
    loop.run(asyncio.sleep(10))
    assert seen == [1, 2, 3, 4, 5]


def test_timeouts_count_in_virtual_time(loop: VirtualLoop) -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return loop.time()

    assert loop.run(wait()) == pytest.approx(30)


def test_waiting_for_what_nobody_will_do_is_an_error(loop: VirtualLoop) -> None:
    with pytest.raises(Deadlock):
        loop.run(loop.create_future())


def test_nothing_of_a_dead_process_runs(loop: VirtualLoop) -> None:
    process, seen = Process("victim"), []

    async def live() -> None:
        try:
            while True:
                seen.append(loop.time())
                await asyncio.sleep(1)
        finally:
            seen.append(-1.0)

    async def grandchild() -> None:
        child = asyncio.get_running_loop().create_task(live())
        await child

    task = loop.start(process, grandchild())
    loop.run(asyncio.sleep(2.5))
    process.alive = False
    loop.run(asyncio.sleep(10))
    assert seen == pytest.approx([0, 1, 2], abs=0.001)
    del task


def test_bytes_arrive_in_order_whatever_their_pieces(loop: VirtualLoop) -> None:
    async def talk() -> Recorder:
        near, far = await connected(network_on(loop))
        assert near.transport is not None
        for number in range(200):
            near.transport.write(b"%d," % number)
            near.transport.writelines([b"a", b"b"])
            await asyncio.sleep(0.0001)
        near.transport.close()
        await asyncio.sleep(10)
        assert near.lost == [None]
        return far

    far = loop.run(talk())
    assert bytes(far.received) == b"".join(b"%d,ab" % number for number in range(200))
    assert far.ended
    assert far.lost == [None]
    assert far.pieces > 10


def test_a_buffered_protocol_is_filled_through_its_own_buffer(loop: VirtualLoop) -> None:
    async def talk() -> BufferedRecorder:
        network_on(loop)
        server = BufferedRecorder()
        listening = await loop.create_server(lambda: server, HOST, 9092)
        assert listening.is_serving()
        transport, _ = await loop.create_connection(Recorder, HOST, 9092)
        transport.write(bytes(range(100)))
        await asyncio.sleep(1)
        return server

    assert bytes(loop.run(talk()).received) == bytes(range(100))


def test_a_reader_that_pauses_stops_the_writer(loop: VirtualLoop) -> None:
    async def talk() -> None:
        near, far = await connected(network_on(loop, kernel_buffer_bytes=100))
        assert near.transport is not None
        assert far.transport is not None
        near.transport.set_write_buffer_limits(high=50)
        far.transport.pause_reading()
        near.transport.write(b"x" * 151)
        writable = [near.can_write]
        await asyncio.sleep(5)
        assert bytes(far.received) == b""
        far.transport.resume_reading()
        await asyncio.sleep(5)
        writable.append(near.can_write)
        assert writable == [False, True]
        assert bytes(far.received) == b"x" * 151

    loop.run(talk())


def test_a_dropped_connection_is_reset_on_both_sides(loop: VirtualLoop) -> None:
    async def talk() -> None:
        network = network_on(loop)
        near, far = await connected(network)
        network.drop(next(iter(network.transports)))
        await asyncio.sleep(1)
        for side in (near, far):
            assert [type(reason) for reason in side.lost] == [ConnectionResetError]
        assert network.transports == {}

    loop.run(talk())


def test_an_aborted_connection_resets_the_other_side(loop: VirtualLoop) -> None:
    async def talk() -> None:
        near, far = await connected(network_on(loop))
        assert near.transport is not None
        near.transport.write(b"never sent")
        near.transport.abort()
        await asyncio.sleep(1)
        assert near.lost == [None]
        assert [type(reason) for reason in far.lost] == [ConnectionResetError]
        assert bytes(far.received) == b""

    loop.run(talk())


def test_nobody_listens_where_nobody_listens(loop: VirtualLoop) -> None:
    network_on(loop)
    with pytest.raises(ConnectionRefusedError):
        loop.run(loop.create_connection(Recorder, HOST, 9092))


@pytest.mark.parametrize("power_cut", [False, True])
def test_the_death_of_a_process_is_seen_by_its_peers(loop: VirtualLoop, power_cut: bool) -> None:
    network, victim = network_on(loop), Process("victim")
    client = Recorder()
    lost_before: list[type[Exception] | type[None]] = []

    async def talk() -> None:
        await loop.start(victim, loop.create_server(Recorder, HOST, 9092))
        await loop.create_connection(lambda: client, HOST, 9092)
        victim.alive = False
        network.process_died(victim, power_cut=power_cut)
        assert client.transport is not None
        client.transport.write(b"into the void")
        await asyncio.sleep(60)
        lost_before.extend(type(reason) for reason in client.lost)
        if power_cut:
            with pytest.raises(TimeoutError):  # nobody is there to refuse
                async with asyncio.timeout(60):
                    await loop.create_connection(Recorder, HOST, 9092)
            network.power_on(HOST)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, HOST, 9092)
        await loop.create_server(Recorder, HOST, 9092)
        client.transport.write(b"is there somebody?")
        await asyncio.sleep(1)

    loop.run(talk())
    assert lost_before == ([] if power_cut else [ConnectionResetError])
    assert [type(reason) for reason in client.lost] == [ConnectionResetError]


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def _echo(loop: VirtualLoop) -> tuple[SimulatedNetwork, Recorder]:
    """A server on host "b", and a client on host "a" that is connected to it."""
    network, client = network_on(loop), Recorder()
    await loop.start(Process("server", "b"), loop.create_server(Echo, "b", 9092))
    await _from_a(loop, client)
    assert client.transport is not None
    return network, client


async def _from_a(loop: VirtualLoop, client: Recorder) -> None:
    await loop.start(Process("client", "a"), loop.create_connection(lambda: client, "b", 9092))


@pytest.mark.parametrize(
    ("a", "b", "one_way"), [("a", "b", False), ("a", "b", True), ("b", "a", True)]
)
def test_what_is_cut_off_waits_until_the_way_is_clear(
    loop: VirtualLoop, a: str, b: str, one_way: bool
) -> None:
    async def talk() -> None:
        network, client = await _echo(loop)
        network.partition(a, b, one_way=one_way)
        assert client.transport is not None
        client.transport.write(b"hello")
        late = asyncio.get_running_loop().create_task(_from_a(loop, Recorder()))
        await asyncio.sleep(30)
        assert bytes(client.received) == b""
        assert not late.done()
        assert client.lost == []
        network.heal("b", "a")
        await asyncio.sleep(40)
        assert bytes(client.received) == b"hello"
        assert late.done()
        assert client.lost == []

    loop.run(talk())


def test_only_the_two_hosts_are_cut_off_from_each_other(loop: VirtualLoop) -> None:
    async def talk() -> None:
        network, _ = await _echo(loop)
        network.partition("a", "b")
        other = Recorder()
        connecting = loop.create_connection(lambda: other, "b", 9092)
        await loop.start(Process("other", "c"), connecting)
        assert other.transport is not None
        other.transport.write(b"hello")
        await asyncio.sleep(1)
        assert bytes(other.received) == b"hello"

    loop.run(talk())


def test_a_slow_way_is_late_in_its_direction(loop: VirtualLoop) -> None:
    async def talk() -> None:
        network, client = await _echo(loop)
        network.link("b", "a").delay_seconds = 2.0
        began = loop.time()
        assert client.transport is not None
        client.transport.write(b"!")
        while not client.received:
            await asyncio.sleep(0.01)
        assert 2.0 < loop.time() - began < 2.1

    loop.run(talk())


def test_a_reset_that_is_cut_off_leaves_a_connection_half_open(loop: VirtualLoop) -> None:
    async def talk() -> None:
        network, client = await _echo(loop)
        server = next(each for each in network.transports if each.host == "b")
        network.partition("b", "a", one_way=True)
        server.abort()
        await asyncio.sleep(30)
        network.heal()
        await asyncio.sleep(30)
        assert client.lost == [], "nothing tells it"
        assert client.transport is not None
        client.transport.write(b"are you there?")
        await asyncio.sleep(1)
        assert [type(reason) for reason in client.lost] == [ConnectionResetError]

    loop.run(talk())


def test_a_blocking_call_overlaps_with_what_goes_on(loop: VirtualLoop) -> None:
    executor = SimulatedExecutor(loop, Random(3), delay_seconds_max=2.0)
    called: list[float] = []

    def call() -> str:
        called.append(loop.time())
        return "done"

    def fail() -> None:
        raise OSError(5, "broken")

    assert loop.run(executor.run(call)) == "done"
    assert 0 < called[0] < loop.time() < 4
    with pytest.raises(OSError, match="broken"):
        loop.run(executor.run(fail))


def test_clock_and_randomness_come_from_the_loop_and_the_seed(loop: VirtualLoop) -> None:
    clock = SimulatedClock(loop)
    before = clock.now_ms(), clock.monotonic_ms()
    loop.run(asyncio.sleep(1.5))
    assert clock.now_ms() - before[0] in (1500, 1501)
    assert clock.monotonic_ms() - before[1] == pytest.approx(1500, abs=1)
    first, second = SeededRandomness(Random(7)), SeededRandomness(Random(7))
    assert [first.uuid(), first.random()] == [second.uuid(), second.random()]
    assert first.uuid().version == 4


def test_the_clock_of_a_machine_may_be_wrong_and_drift(loop: VirtualLoop) -> None:
    right, wrong = SimulatedClock(loop), SimulatedClock(loop)
    wrong.skew_ms = 5000
    assert wrong.now_ms() - right.now_ms() == 5000
    loop.run(asyncio.sleep(10))
    wrong.drift(1.1)
    assert wrong.monotonic_ms() == right.monotonic_ms(), "it does not jump"
    loop.run(asyncio.sleep(10))
    wrong.drift(1.0)
    loop.run(asyncio.sleep(10))
    assert wrong.monotonic_ms() - right.monotonic_ms() == pytest.approx(1000, abs=1)
    assert wrong.now_ms() - right.now_ms() == pytest.approx(6000, abs=1)


def test_one_seed_gives_one_history() -> None:
    def history(seed: int) -> list[tuple[float, int]]:
        virtual = VirtualLoop()
        arrivals: list[tuple[float, int]] = []

        class Noting(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                arrivals.append((virtual.time(), len(data)))

        async def talk() -> None:
            network_on(virtual, seed)
            await virtual.create_server(Noting, HOST, 9092)
            transport, _ = await virtual.create_connection(Recorder, HOST, 9092)
            for _ in range(20):
                transport.write(b"x" * 1000)
                await asyncio.sleep(0.01)

        virtual.run(talk())
        virtual.close()
        return arrivals

    assert history(1) == history(1)
    assert history(1) != history(2)


def test_a_worker_in_lockstep_lets_the_loop_append_in_the_middle_of_its_sync(
    loop: VirtualLoop,
) -> None:
    def run() -> list[bytes]:
        disk = SimulatedFileSystem()
        disk.sync_everything()
        executor = LockstepExecutor(loop, Random(5), disk, delay_seconds_max=1.0)
        file = disk.open("/a", create=True)
        disk.sync_directory("/")
        stable: list[bytes] = []

        async def append() -> None:
            for number in range(20):
                file.append([b"%d" % (number % 10)])
                await asyncio.sleep(0.1)

        async def flush() -> None:
            appending = asyncio.get_running_loop().create_task(append())
            while not appending.done():
                size = file.size()
                await executor.run(file.sync)
                after = disk.copy().after_power_cut(LOSE_EVERYTHING).read_file("/a")
                assert size <= len(after)
                stable.append(after)
                assert len(after) < file.size() or appending.done(), "nothing overlapped"

        loop.run(flush())
        return stable

    assert run() == run()


def test_a_worker_of_a_dead_process_ends_without_touching_the_disk(loop: VirtualLoop) -> None:
    disk = SimulatedFileSystem()
    process = Process("victim")
    executor = LockstepExecutor(loop, Random(5), disk, delay_seconds_max=1.0)
    file = disk.open("/a", create=True)
    cleaned: list[str] = []

    def work() -> None:
        try:
            while True:
                file.append([b"x"])
                file.sync()
        finally:
            cleaned.append("finally")
            disk.remove("/a")

    task = loop.start(process, executor.run(work))
    loop.run(asyncio.sleep(3))
    process.alive = False
    heir = disk.after_kill()
    executor.kill()
    assert cleaned == ["finally"]
    assert 0 < heir.size("/a") < 100
    assert not task.done()


def test_a_failure_in_a_worker_reaches_its_caller(loop: VirtualLoop) -> None:
    executor = LockstepExecutor(loop, Random(5), SimulatedFileSystem(), delay_seconds_max=1.0)

    def fail() -> None:
        raise OSError(5, "broken")

    with pytest.raises(OSError, match="broken"):
        loop.run(executor.run(fail))
    assert loop.run(executor.run(lambda: 7)) == 7
