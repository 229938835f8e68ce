"""Clients that ask for gigabytes and read none of it: the broker's memory, and the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headrace.protocol.frames import encode_request
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.records.header import iterate_headers
from tests.faults.wire import LATEST, Wire
from tests.support.batches import Batch
from tests.support.brokers import HeadraceProcess
from tests.support.processes import memory

PARTITIONS = 4
BATCHES = 55
READERS = 60
MEMORY_MAX = 100 * 1024 * 1024
ANSWER_MAX = 50 * 1024 * 1024
# Many times what it takes on a quiet machine; held up by the reads it was 1.7 seconds.
PRODUCE_SECONDS_MAX = 1.0
BATCH = Batch([(None, bytes(1_000_000))]).encode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceProcess]:
    process = HeadraceProcess(tmp_path_factory.mktemp("unread") / "data")
    process.start()
    with Wire(process.port) as wire:
        assert wire.create("small") == 0
        for topic in ("large", *[f"large-{number}" for number in range(1, PARTITIONS)]):
            assert wire.create(topic) == 0
            for number in range(BATCHES):
                # The last one is on disk, so that all of them may be read.
                acks = -1 if number == BATCHES - 1 else 1
                assert wire.produce(topic, BATCH, acks=acks).error_code == 0
    yield process
    process.kill()


def fetch(*, min_bytes: int = 0, max_wait_ms: int = 0) -> bytes:
    topics = ["large", *[f"large-{number}" for number in range(1, PARTITIONS)]]
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=ANSWER_MAX)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=ANSWER_MAX,
        topics=[FetchTopic(topic=topic, partitions=[wanted]) for topic in topics],
    )
    return encode_request(request, 4, 1, "silent")


def unread(stack: ExitStack, broker: HeadraceProcess) -> socket.socket:
    """A connection whose kernel holds next to nothing for it."""
    client = socket.socket()
    stack.enter_context(client)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", broker.port))
    return client


def has_begun(client: socket.socket) -> bool:
    return client.recv(1, socket.MSG_PEEK) != b""


def test_readers_that_read_nothing_cost_little_memory_and_hold_up_nobody(
    broker: HeadraceProcess,
) -> None:
    before = memory(broker.pid).total
    slowest = 0.0
    with ExitStack() as stack, Wire(broker.port) as wire:
        readers = [unread(stack, broker) for _ in range(READERS)]
        for reader in readers:
            reader.sendall(fetch())
            began = time.monotonic()
            assert wire.produce("small", Batch([(None, b"x")]).encode(), acks=1).error_code == 0
            slowest = max(slowest, time.monotonic() - began)
        assert all(has_begun(reader) for reader in readers)
        grown = memory(broker.pid).total - before
    assert grown <= MEMORY_MAX
    assert slowest <= PRODUCE_SECONDS_MAX


def test_long_polls_that_end_together_are_answered_one_at_a_time(broker: HeadraceProcess) -> None:
    before = memory(broker.pid).total
    with ExitStack() as stack, Wire(broker.port) as wire:
        reader = unread(stack, broker)
        for _ in range(8):
            reader.sendall(fetch(min_bytes=1 << 30, max_wait_ms=200))
        assert has_begun(reader)
        assert wire.offset("large", LATEST) == BATCHES
        grown = memory(broker.pid).total - before
    assert grown <= MEMORY_MAX / 4


def test_an_answer_of_fifty_megabytes_arrives_whole(broker: HeadraceProcess) -> None:
    with Wire(broker.port) as wire:
        answer = wire.fetch("large", 0, max_bytes=ANSWER_MAX)
        assert answer.records is not None
        headers = [header for _, header in iterate_headers(memoryview(answer.records))]
    assert [header.base_offset for header in headers] == list(range(ANSWER_MAX // len(BATCH)))
