"""One connection: answers leave in order, and what a client can make us hold is bounded."""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import pytest

from headrace.broker.connection import HELD_BYTES_MAX, UNANSWERED_MAX, Connection, ResponseSlot
from headrace.broker.disk_reads import DiskReads
from headrace.broker.listener import ConnectionQuotas, Listener
from headrace.broker.sender import SendMemory
from headrace.core.errors import MalformedMessage
from headrace.core.keys.server import ServerKeys
from tests.support.metadata import InlineExecutor


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.aborted = False
        self.unread_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None:  # type: ignore[override]  # a sequence is what we are given
        for data in list_of_data:
            self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class ScriptedDispatcher:
    """Answers a frame at once, later, or not at all, as its first byte says."""

    def __init__(self) -> None:
        self.later: list[tuple[Connection, ResponseSlot, bytes]] = []
        self.seen = 0

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        self.seen += 1
        payload = bytes(frame)
        if payload == b"bad":
            raise MalformedMessage("no such thing")
        if payload.startswith(b"now"):
            connection.send_in_turn(payload)
            return
        answer = connection.reserve_slot()
        if payload.startswith(b"later"):
            self.later.append((connection, answer, payload))
        elif payload.startswith(b"large"):
            connection.fill(answer, (bytes(HELD_BYTES_MAX // 2),))
        elif payload.startswith(b"silent"):
            connection.fill(answer, ())
        else:
            connection.fill(answer, (payload,))

    def finish(self, index: int) -> None:
        connection, answer, payload = self.later[index]
        connection.fill(answer, (payload,))


class ScriptedFrames:
    """The frames of one connection, all of which go to one dispatcher."""

    def __init__(self, dispatcher: ScriptedDispatcher, connection: Connection) -> None:
        self._dispatcher = dispatcher
        self._connection = connection

    def handle(self, frame: memoryview) -> None:
        self._dispatcher.dispatch(self._connection, frame)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)


class ListenerHarness:
    """A connection with everything around it recorded."""

    def __init__(
        self, connections_max: int = 10, per_address_max: int = 10, *, is_open: bool = True
    ) -> None:
        self.dispatcher = ScriptedDispatcher()
        self.count = ConnectionQuotas(
            lambda: ServerKeys(
                max_connections=connections_max, max_connections_per_ip=per_address_max
            )
        )
        self.listener = Listener(
            "PLAINTEXT",
            partial(ScriptedFrames, self.dispatcher),
            self.count,
            frame_bytes_max=2 * HELD_BYTES_MAX,
            send_memory=SendMemory(DiskReads(InlineExecutor())),
            now=lambda: 0.0,
            idle_seconds_max=60,
        )
        if is_open:
            self.listener.open()

    def connect(self) -> tuple[Connection, RecordingTransport]:
        connection, transport = self.listener.connection(), RecordingTransport()
        connection.connection_made(transport)
        return connection, transport


def send(connection: Connection, *payloads: bytes) -> None:
    data = b"".join(len(each).to_bytes(4, "big") + each for each in payloads)
    room = connection.get_buffer(-1)
    room[: len(data)] = data
    connection.buffer_updated(len(data))


def test_answers_leave_in_the_order_of_requests() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, b"a", b"later-1", b"b", b"later-2", b"c")
    assert transport.written == b"a"
    harness.dispatcher.finish(1)
    assert transport.written == b"a"
    harness.dispatcher.finish(0)
    assert transport.written == b"alater-1blater-2c"


def test_answers_that_are_known_at_once_keep_the_order_too() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, b"now-1", b"now-2", b"a", b"later-1", b"now-3", b"b", b"now-4")
    assert transport.written == b"now-1now-2a"
    harness.dispatcher.finish(0)
    assert transport.written == b"now-1now-2alater-1now-3bnow-4"
    send(connection, b"now-5")
    send(connection, b"b")
    assert transport.written.endswith(b"now-4now-5b")


def test_answers_known_before_a_malformed_request_leave() -> None:
    connection, transport = ListenerHarness().connect()
    send(connection, b"now", b"bad")
    assert transport.written == b"now"
    assert transport.closed


def test_a_request_without_answer_holds_up_nobody() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, b"silent", b"a")
    assert transport.written == b"a"


def test_a_malformed_request_costs_this_connection_only() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    _, neighbour = harness.connect()
    send(connection, b"bad")
    assert transport.closed
    assert not neighbour.closed


def test_a_frame_above_the_limit_costs_this_connection_only() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    _, neighbour = harness.connect()
    room = connection.get_buffer(-1)
    room[:4] = (2 * HELD_BYTES_MAX + 1).to_bytes(4, "big")
    connection.buffer_updated(4)
    assert transport.closed
    assert not neighbour.closed


async def test_a_client_that_pipelines_without_end_is_not_read_from() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, *[b"later"] * (UNANSWERED_MAX + 5))
    assert harness.dispatcher.seen == UNANSWERED_MAX
    while_crowded = transport.reading
    harness.dispatcher.finish(0)
    assert (while_crowded, transport.reading) == (False, True)
    await asyncio.sleep(0)
    assert harness.dispatcher.seen == UNANSWERED_MAX + 1


async def test_many_quick_requests_in_one_read_are_all_served() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, *[b"x"] * (2 * UNANSWERED_MAX + 5))
    for _ in range(4):
        await asyncio.sleep(0)
    assert transport.written == b"x" * (2 * UNANSWERED_MAX + 5)


async def test_a_slow_reader_is_not_read_from_until_it_has_caught_up() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    connection.pause_writing()
    while_slow = transport.reading
    connection.resume_writing()
    assert (while_slow, transport.reading) == (False, True)


def test_a_connection_above_the_limit_is_closed_and_a_free_place_taken() -> None:
    harness = ListenerHarness(connections_max=1)
    first, _ = harness.connect()
    _, refused = harness.connect()
    assert refused.closed
    first.connection_lost(None)
    _, admitted = harness.connect()
    assert not admitted.closed


def test_a_refused_connection_does_not_free_the_place_of_another() -> None:
    harness = ListenerHarness(connections_max=1)
    harness.connect()
    refused, _ = harness.connect()
    refused.connection_lost(None)
    _, still_refused = harness.connect()
    assert still_refused.closed


def test_one_address_may_not_take_all_the_places() -> None:
    harness = ListenerHarness(connections_max=10, per_address_max=2)
    _, first = harness.connect()
    _, second = harness.connect()
    _, third = harness.connect()
    assert [each.closed for each in (first, second, third)] == [False, False, True]


async def test_requests_wait_until_the_listener_is_open() -> None:
    harness = ListenerHarness(is_open=False)
    connection, transport = harness.connect()
    send(connection, b"early")  # uvloop reads even when told not to in `connection_made`
    before = transport.reading, harness.dispatcher.seen
    harness.listener.open()
    await asyncio.sleep(0)
    assert (before, transport.reading) == ((False, 0), True)
    assert transport.written == b"early"


async def test_a_silent_connection_is_closed_after_the_idle_time() -> None:
    now = 0.0
    harness = ListenerHarness()
    harness.listener.now = lambda: now
    _, transport = harness.connect()
    task = asyncio.create_task(harness.listener.close_idle(every_seconds=0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    before = transport.closed
    now = 61.0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (before, transport.closed) == (False, True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_answer_after_the_client_is_gone_goes_nowhere() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, b"later")
    connection.connection_lost(ConnectionResetError())
    harness.dispatcher.finish(0)
    assert transport.written == b""


async def test_answers_that_wait_for_another_are_bounded_in_bytes() -> None:
    harness = ListenerHarness()
    connection, transport = harness.connect()
    send(connection, b"later", *[b"large"] * 10)
    assert harness.dispatcher.seen == 3
    while_full = transport.reading
    harness.dispatcher.finish(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (while_full, transport.reading) == (False, True)
    assert len(transport.written) == len(b"later") + 10 * (HELD_BYTES_MAX // 2)


async def test_a_silent_client_that_reads_nothing_is_cut_off() -> None:
    now = 0.0
    harness = ListenerHarness()
    harness.listener.now = lambda: now
    _, transport = harness.connect()
    transport.unread_bytes = 1
    task = asyncio.create_task(harness.listener.close_idle(every_seconds=0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    now = 61.0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.aborted
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
