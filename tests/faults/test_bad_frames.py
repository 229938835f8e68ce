"""Bytes that are no requests, or mad ones: they cost their sender the connection, nobody else."""

from __future__ import annotations

import random
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.broker.routes import ROUTES_ON
from headrace.core.errors import ErrorCode
from headrace.core.listeners import ListenerType
from headrace.protocol.api_keys import request_class
from headrace.protocol.frames import encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.testing import Broker
from tests.faults.load import wait_until
from tests.faults.wire import Wire
from tests.support.batches import Batch
from tests.support.brokers import HeadraceProcess
from tests.support.message_values import ValueMaker

ROUTES = ROUTES_ON[ListenerType.BROKER]

FRAME_BYTES_MAX = 1 << 20
FAULTS = ("after a fault", "request failed", "never retrieved")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "socket.request.max.bytes": str(FRAME_BYTES_MAX),
        "auto.create.topics.enable": "false",
    }
    with Broker(settings=settings) as started:
        started.create_topic("t")
        yield started


@pytest.fixture
def neighbour(broker: Broker, caplog: pytest.LogCaptureFixture) -> Iterator[Wire]:
    """A well-behaved client that must notice nothing; no fault of ours may come to light."""
    with Wire(broker.port) as wire:
        before = wire.producer_id()
        yield wire
        assert wire.producer_id() > before
        assert wire.produce("t", Batch().encode()).error_code == ErrorCode.NONE
    # At this point `caplog.text` has only what was said since the test ended.
    for record in caplog.get_records("call"):
        assert not record.exc_info, record.getMessage()
        assert not any(fault in record.getMessage() for fault in FAULTS), record.getMessage()


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


MALFORMED = {
    "a negative length": struct.pack(">i", -1) + b"x" * 20,
    "the lowest length": struct.pack(">i", -(2**31)),
    "a length above the limit": struct.pack(">i", FRAME_BYTES_MAX + 1) + b"x" * 20,
    "the highest length": struct.pack(">i", 2**31 - 1),
    "an empty frame": framed(b""),
    "a frame shorter than a header": framed(b"\x00\x12\x00"),
    "a client id longer than the frame": framed(struct.pack(">hhih", 3, 8, 1, 500) + b"abc"),
    "an API nobody knows": framed(header(9999, 0)),
    "a negative API": framed(header(-5, 0)),
    "an API we do not serve": framed(header(24, 0) + bytes(40)),
    "a version to come": framed(header(3, 99) + bytes(40)),
    "a version long gone": framed(header(1, 0) + bytes(40)),
    "a negative version": framed(header(0, -1) + bytes(40)),
    "no body": framed(header(3, 8)),
    "more topics than bytes": framed(header(3, 8) + struct.pack(">i", 2**31 - 1)),
    "a string that is no text": framed(header(3, 8) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "text": b"hello, is this Kafka?\n" * 10,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_closes_its_own_connection_only(
    broker: Broker, neighbour: Wire, name: str
) -> None:
    with Wire(broker.port) as wire:
        wire.socket.sendall(MALFORMED[name])
        assert wire.is_closed_by_broker()
    assert neighbour.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


def test_the_reason_for_hanging_up_is_logged(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(broker.port) as wire:
        wire.socket.sendall(MALFORMED["a length above the limit"])
        assert wire.is_closed_by_broker()
    assert "closing connection: client=/127.0.0.1" in caplog.text
    assert f"{FRAME_BYTES_MAX + 1} bytes" in caplog.text
    assert "socket.request.max.bytes" in caplog.text


@pytest.mark.usefixtures("neighbour")
def test_a_frame_at_the_limit_is_served(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        # The rest of the frame is ignored, as Kafka ignores it.
        body = encode_request(MetadataRequest(topics=[]), 12, 1, "x")[4:]
        wire.socket.sendall(framed(body + bytes(FRAME_BYTES_MAX - len(body))))
        assert wire.receive()


@pytest.mark.usefixtures("neighbour")
def test_an_unknown_version_of_api_versions_is_answered(broker: Broker) -> None:
    """The one request a client sends before it knows what we speak."""
    with Wire(broker.port) as wire:
        wire.socket.sendall(framed(header(18, 99) + bytes(10)))
        answer = ApiVersionsResponse.decode(wire.receive()[4:], 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert wire.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


@pytest.mark.usefixtures("neighbour")
def test_good_requests_before_a_bad_one_are_answered(broker: Broker) -> None:
    good = encode_request(MetadataRequest(topics=[]), 12, 7, "x")
    with Wire(broker.port) as wire:
        wire.socket.sendall(good * 3 + MALFORMED["an API nobody knows"] + good)
        for _ in range(3):
            assert wire.receive()[:4] == (7).to_bytes(4, "big")
        assert wire.is_closed_by_broker()


@pytest.mark.usefixtures("neighbour")
def test_a_request_that_comes_byte_by_byte_is_served(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_request(MetadataRequest(topics=[]), 12, 1, "slow"):
            wire.socket.sendall(bytes([byte]))
        assert wire.receive()


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("size", [1, 3, 4, 10, 60])
def test_half_a_request_and_a_hang_up_leave_nothing_behind(broker: Broker, size: int) -> None:
    request = encode_request(MetadataRequest(topics=[]), 12, 1, "half" * 20)
    for _ in range(20):
        with Wire(broker.port) as wire:
            wire.socket.sendall(request[:size])


def test_silent_and_half_said_connections_are_closed_in_time() -> None:
    """Slow loris: whoever opens a request and never ends it is put out after the idle time."""
    with Broker(settings={"connections.max.idle.ms": "300", "max.connections": "40"}) as broker:
        lorises = [Wire(broker.port) for _ in range(30)]
        for number, each in enumerate(lorises):
            each.socket.sendall(struct.pack(">i", 1000)[: number % 5] + b"")
        with Wire(broker.port) as wire:
            assert wire.producer_id() >= 0
        assert all(each.is_closed_by_broker() for each in lorises)
        for each in lorises:
            each.socket.close()
        with Wire(broker.port) as wire:
            assert wire.producer_id() >= 0


def test_connections_above_the_limit_are_refused_and_room_is_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Broker(settings={"max.connections": "5"}) as broker:
        admitted = [Wire(broker.port) for _ in range(5)]
        assert all(each.producer_id() >= 0 for each in admitted)
        with Wire(broker.port) as wire:
            assert wire.is_closed_by_broker()
        admitted.pop().socket.close()
        wait_until(lambda: is_served(broker.port), "no room was given back")
        for each in admitted:
            each.socket.close()
    assert "limit=max.connections=5" in caplog.text


def is_served(port: int) -> bool:
    with suppress(OSError, EOFError), Wire(port) as wire:
        return wire.producer_id() >= 0
    return False


def claimed_bytes(pid: int) -> int:
    """What the process has asked the system for, whether it has touched it or not."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


def test_a_length_alone_claims_no_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    process = HeadraceProcess(tmp_path_factory.mktemp("claims") / "data")
    process.start()
    try:
        before = claimed_bytes(process.pid)
        claims = [Wire(process.port) for _ in range(100)]
        with Wire(process.port) as wire:
            # The buffer grows when the next bytes come, after the length has been seen.
            for data in (struct.pack(">i", 100 << 20), bytes(100)):
                for each in claims:
                    each.socket.sendall(data)
                assert wire.producer_id() >= 0
        assert claimed_bytes(process.pid) - before < 500 << 20
        for each in claims:
            each.socket.close()
    finally:
        process.kill()


def test_who_never_reads_is_not_read_from_either(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Pipelined requests for large answers, none of them taken: what we hold is bounded."""
    process = HeadraceProcess(tmp_path_factory.mktemp("unread") / "data")
    process.start()
    try:
        with Wire(process.port) as wire:
            assert wire.create("large") == ErrorCode.NONE
            record = Batch([(None, bytes(900_000))]).encode()
            assert wire.produce("large", record).error_code == ErrorCode.NONE
            before = process.memory().total
            with Wire(process.port) as deaf:
                sent = send_until_stuck(deaf, fetch_request("large"))
                assert sent < 10_000, "it was read without end"
                assert wire.producer_id() >= 0
                assert process.memory().total - before < 60 << 20
    finally:
        process.kill()


def fetch_request(topic: str) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    return encode_request(request, 12, 1, "deaf" * 500)


def send_until_stuck(wire: Wire, request: bytes) -> int:
    """How many requests the other side and the system between us have taken."""
    wire.socket.setblocking(False)
    sent = 0
    while sent < 10_000 * len(request) and select.select([], [wire.socket], [], 1.0)[1]:
        sent += wire.socket.send(request * 10)
    return sent // len(request)


def send_and_see_the_end(port: int, data: bytes) -> None:
    """Whatever comes back, the broker must come to the end of it."""
    with Wire(port) as wire:
        with suppress(ConnectionError):
            wire.socket.sendall(data)
            wire.socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while wire.socket.recv(1 << 16):
                pass


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("seed", range(4))
def test_random_frames_do_no_harm(broker: Broker, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        key, version = draw.choice(list(ROUTES)), draw.randrange(-1, 20)
        body = draw.randbytes(draw.randrange(0, 200))
        send_and_see_the_end(broker.port, framed(header(key, version) + body))


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("key", ROUTES, ids=lambda key: ROUTES[key].api_key.name)
def test_well_formed_requests_full_of_nonsense_do_no_harm(broker: Broker, key: int) -> None:
    """Every version of every API that is served, with values nobody would send, and mutations."""
    draw = random.Random(key)
    make = ValueMaker(draw, polite=False)
    route = ROUTES[key]
    for version in range(route.lowest_served, route.highest_version + 1):
        for _ in range(4):
            request = encode_request(make.message(request_class(key), version), version, 1, "mad")
            send_and_see_the_end(broker.port, request)
            mutated = bytearray(request)
            for _ in range(3):
                mutated[draw.randrange(14, len(mutated)) if len(mutated) > 14 else -1] ^= (
                    1 << draw.randrange(8)
                )
            send_and_see_the_end(broker.port, bytes(mutated))
