"""Answers that lie in files: read as the client takes them, and never more than it takes."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from headrace.broker import sender
from headrace.broker.disk_reads import DiskReads
from headrace.broker.sender import (
    PIECE_BYTES_MAX,
    PIECE_BYTES_MIN,
    RESPONSE_BYTES_MAX,
    SLICE_BYTES,
    TRANSPORT_BYTES,
    UNSENT_BYTES,
    Sender,
    SendMemory,
)
from headrace.core.files import FileRange
from headrace.node import system
from headrace.replication import flush_scheduler
from tests.support.files import BytesFile
from tests.support.metadata import InlineExecutor

T = TypeVar("T")
MB = 1024 * 1024


class Socket(asyncio.Transport):
    """Takes so many bytes, and keeps what is above that until the client reads on."""

    def __init__(self, takes: int = 1 << 40) -> None:
        super().__init__()
        self.sender: Sender
        self.takes = takes
        self.arrived = bytearray()
        self.kept: list[memoryview] = []
        self.closed = False

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self.kept))

    def get_write_buffer_size(self) -> int:
        return self.kept_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        count = 0 if self.kept else min(self.takes, len(view))
        self.arrived += view[:count]
        self.takes -= count
        if count < len(view):
            self.kept.append(view[count:])
            if self.kept_bytes > TRANSPORT_BYTES:
                self.sender.pause()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def read(self, count: int) -> None:
        """The client reads: the socket takes so much more."""
        kept, self.kept = self.kept, []
        self.takes += count
        for view in kept:
            self.write(view)
        if not self.kept:
            self.sender.resume()

    def close(self) -> None:
        self.closed = True


class Outgoing:
    """A sender with everything around it recorded."""

    def __init__(self, memory: SendMemory, takes: int = 1 << 40) -> None:
        self.socket = Socket(takes)
        self.moves = 0
        self.failures: list[Exception] = []
        self.sender = Sender(
            self.socket, memory, backlog_changed=self._backlog_changed, failed=self.failures.append
        )
        self.socket.sender = self.sender

    def _backlog_changed(self) -> None:
        self.moves += 1


def send_memory() -> SendMemory:
    return SendMemory(DiskReads(InlineExecutor()))


def in_file(data: bytes) -> FileRange:
    return FileRange(BytesFile(data), 0, len(data))


async def settle(outgoing: Outgoing) -> None:
    """Until nothing happens any more without the client."""
    before = -1
    while len(outgoing.socket.arrived) != before:
        before = len(outgoing.socket.arrived)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_bytes_and_files_arrive_in_order() -> None:
    outgoing = Outgoing(send_memory())
    large = random.Random(1).randbytes(3 * MB + 17)
    small = [b"%d" % number * 40 for number in range(5)]
    outgoing.sender.send([b"head", in_file(large), b"between", *map(in_file, small)])
    outgoing.sender.send([b"next"])
    await settle(outgoing)
    assert outgoing.socket.arrived == b"head" + large + b"between" + b"".join(small) + b"next"
    assert not outgoing.sender.is_slow


async def test_a_client_that_reads_by_and_by_gets_every_byte() -> None:
    data = random.Random(2).randbytes(2 * MB + 1)
    outgoing = Outgoing(send_memory(), takes=10)
    outgoing.sender.send([b"head", in_file(data), b"tail"])
    steps = random.Random(3)
    while len(outgoing.socket.arrived) < len(data) + 8:
        outgoing.socket.read(steps.randrange(1, 300_000))
        await settle(outgoing)
    assert outgoing.socket.arrived == b"head" + data + b"tail"


async def test_a_client_that_reads_nothing_holds_one_piece() -> None:
    memory = send_memory()
    outgoing = Outgoing(memory, takes=0)
    outgoing.sender.send([b"head", in_file(bytes(50 * MB))])
    await settle(outgoing)
    assert outgoing.socket.kept_bytes <= PIECE_BYTES_MAX + 4
    assert outgoing.sender.is_slow


async def test_ten_thousand_clients_that_read_nothing_hold_little_more_than_their_share() -> None:
    memory = send_memory()
    data = BytesFile(bytes(MB))
    stalled = []
    for _ in range(10_000):
        outgoing = Outgoing(memory, takes=0)
        # More than a transport takes before it says that its client is slow.
        outgoing.sender.send([bytes(TRANSPORT_BYTES), FileRange(data, 0, MB)])
        stalled.append(outgoing)
    in_files = sum(each.socket.kept_bytes - TRANSPORT_BYTES for each in stalled)
    assert in_files <= UNSENT_BYTES + 10_000 * PIECE_BYTES_MIN
    for each in stalled:
        each.sender.drop()
    assert memory.unsent == 0


async def test_who_stands_still_longest_makes_room_for_the_answers_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "STALLED_SECONDS_MIN", 0.0)
    memory = send_memory()
    room = RESPONSE_BYTES_MAX // (4 * MB)
    readers = Outgoing(memory, takes=0)
    readers.sender.send([bytes(4 * MB)])
    stalled = [Outgoing(memory, takes=0) for _ in range(room + 5)]
    for outgoing in stalled:
        outgoing.sender.send([bytes(2 * MB), bytes(2 * MB)])
        readers.socket.read(MB // 16)
    cut_off = [bool(outgoing.failures) for outgoing in stalled]
    assert cut_off == [True] * 6 + [False] * (room - 1)
    assert not readers.failures
    held = sum(outgoing.socket.kept_bytes for outgoing in stalled if not outgoing.failures)
    assert held + readers.socket.kept_bytes <= RESPONSE_BYTES_MAX
    for outgoing in (*stalled, readers):
        outgoing.socket.read(100 * MB)
        outgoing.sender.drop()
    assert memory._response_bytes == 0
    assert not memory._stalled


async def test_who_has_only_just_got_an_answer_is_not_cut_off() -> None:
    memory = send_memory()
    fresh = [Outgoing(memory, takes=0) for _ in range(3)]
    for outgoing in fresh:
        outgoing.sender.send([bytes(RESPONSE_BYTES_MAX // 2 + 1)])
    assert not any(outgoing.failures for outgoing in fresh)


async def test_what_a_slow_client_has_read_is_free_for_others() -> None:
    memory = send_memory()
    outgoing = Outgoing(memory, takes=0)
    outgoing.sender.send([in_file(bytes(MB))])
    while_slow = memory.unsent
    outgoing.socket.read(2 * MB)
    await settle(outgoing)
    assert (while_slow, memory.unsent) == (PIECE_BYTES_MAX, 0)


async def test_a_kept_piece_is_not_written_over_by_the_next() -> None:
    memory = send_memory()
    slow, quick = Outgoing(memory, takes=7), Outgoing(memory)
    slow.sender.send([in_file(b"s" * MB)])
    quick.sender.send([in_file(b"q" * MB)])
    await settle(quick)
    slow.socket.read(2 * MB)
    await settle(slow)
    assert quick.socket.arrived == b"q" * MB
    assert slow.socket.arrived == b"s" * MB


async def test_where_memory_is_short_pieces_are_small_and_right() -> None:
    memory = send_memory()
    memory.unsent = UNSENT_BYTES
    outgoing = Outgoing(memory, takes=100_000)
    data = random.Random(5).randbytes(MB)
    outgoing.sender.send([b"head", in_file(data), in_file(data[:1000]), in_file(data)])
    while_slow = outgoing.socket.kept_bytes
    outgoing.socket.read(3 * MB)
    await settle(outgoing)
    assert while_slow <= TRANSPORT_BYTES + PIECE_BYTES_MIN
    assert outgoing.socket.arrived == b"head" + data + data[:1000] + data


async def test_others_have_their_turn_while_a_large_answer_leaves() -> None:
    outgoing = Outgoing(send_memory())
    outgoing.sender.send([in_file(bytes(10 * MB))])
    assert len(outgoing.socket.arrived) <= SLICE_BYTES
    await settle(outgoing)
    assert len(outgoing.socket.arrived) == 10 * MB


async def test_what_is_not_in_memory_is_read_by_a_worker() -> None:
    executor = InlineExecutor()
    outgoing = Outgoing(SendMemory(DiskReads(executor)))
    data = random.Random(4).randbytes(700_000)
    file = BytesFile(data)
    file.is_cold = True
    outgoing.sender.send([b"head", FileRange(file, 0, len(data)), b"tail"])
    assert outgoing.socket.arrived == b"head"
    await settle(outgoing)
    assert outgoing.socket.arrived == b"head" + data + b"tail"
    assert executor.calls >= len(data) // PIECE_BYTES_MAX


class HeldExecutor:
    """A worker that does not come back until it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting = 0

    async def run(self, call: Callable[[], T]) -> T:
        self.waiting += 1
        await self.go.wait()
        return call()


async def test_a_client_that_leaves_while_the_disk_is_waited_for_gets_nothing_more() -> None:
    executor = HeldExecutor()
    outgoing = Outgoing(SendMemory(DiskReads(executor)))
    file = BytesFile(bytes(MB))
    file.is_cold = True
    outgoing.sender.send([b"head", FileRange(file, 0, MB)])
    await settle(outgoing)
    outgoing.sender.drop()
    executor.go.set()
    await settle(outgoing)
    assert outgoing.socket.arrived == b"head"
    assert not outgoing.failures


async def test_an_answer_that_cannot_be_read_to_its_end_is_told_once() -> None:
    for is_cold in (False, True):
        outgoing = Outgoing(send_memory(), takes=MB)
        file = BytesFile(bytes(3 * MB))
        outgoing.sender.send([FileRange(file, 0, 3 * MB), b"never"])
        file.is_cold, file.error = is_cold, OSError(errno.EIO, "broken")
        outgoing.socket.read(3 * MB)
        await settle(outgoing)
        assert [str(each) for each in outgoing.failures] == ["[Errno 5] broken"]
        assert b"never" not in outgoing.socket.arrived


async def test_a_file_that_has_become_shorter_ends_the_answer() -> None:
    outgoing = Outgoing(send_memory())
    outgoing.sender.send([FileRange(BytesFile(bytes(10)), 0, 20)])
    await settle(outgoing)
    assert len(outgoing.failures) == 1


async def test_closing_waits_for_what_was_promised() -> None:
    outgoing = Outgoing(send_memory(), takes=0)
    outgoing.sender.send([in_file(bytes(3 * MB))])
    outgoing.sender.close()
    while_unsent = outgoing.socket.closed
    outgoing.socket.read(4 * MB)
    await settle(outgoing)
    assert (while_unsent, outgoing.socket.closed) == (False, True)
    assert len(outgoing.socket.arrived) == 3 * MB


async def test_it_says_when_it_falls_behind_and_when_it_has_caught_up() -> None:
    outgoing = Outgoing(send_memory(), takes=0)
    outgoing.sender.send([in_file(bytes(3 * MB))])
    behind = outgoing.moves, outgoing.sender.is_slow
    outgoing.socket.read(4 * MB)
    await settle(outgoing)
    assert behind == (1, True)
    assert (outgoing.moves > 1, outgoing.sender.is_slow) == (True, False)


async def test_what_workers_read_for_clients_that_do_not_read_is_bounded_over_all() -> None:
    memory = send_memory()
    outgoings = [Outgoing(memory, takes=0) for _ in range(500)]
    for each in outgoings:
        file = BytesFile(bytes(MB))
        file.is_cold = True
        each.sender.send([FileRange(file, 0, MB)])
    await settle(outgoings[-1])
    for _ in range(2_000):
        await asyncio.sleep(0)
    kept = sum(each.socket.kept_bytes for each in outgoings)
    assert all(each.socket.kept_bytes for each in outgoings)
    each_may_hold = TRANSPORT_BYTES + PIECE_BYTES_MIN
    assert kept <= UNSENT_BYTES + len(outgoings) * each_may_hold
    for each in outgoings:
        each.sender.drop()
    assert memory.unsent == 0


async def test_reads_from_the_disk_leave_the_flushes_their_workers() -> None:
    executor = HeldExecutor()
    memory = SendMemory(DiskReads(executor))
    for _ in range(30):
        file = BytesFile(bytes(MB))
        file.is_cold = True
        Outgoing(memory).sender.send([FileRange(file, 0, MB)])
    for _ in range(5):
        await asyncio.sleep(0)
    # One for work on records, one for retention and the like.
    assert 0 < executor.waiting <= system.WORKERS - flush_scheduler.WORKERS - 2


async def test_closing_waits_for_what_a_worker_reads_and_a_slow_client_takes() -> None:
    outgoing = Outgoing(send_memory(), takes=0)
    file = BytesFile(bytes(MB))
    file.is_cold = True
    outgoing.sender.send([FileRange(file, 0, MB)])
    outgoing.sender.close()
    await settle(outgoing)
    outgoing.socket.read(4 * MB)
    await settle(outgoing)
    assert len(outgoing.socket.arrived) == MB
    assert outgoing.socket.closed
