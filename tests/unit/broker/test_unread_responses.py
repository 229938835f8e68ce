"""A client that asks and never reads: every API, until the broker stops listening to it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from headrace.broker.connection import UNANSWERED_MAX, Connection
from headrace.broker.routes import ROUTES_ON
from headrace.broker.sender import TRANSPORT_BYTES
from headrace.core.listeners import ListenerType
from headrace.node.node import Node
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import encode_request
from tests.support.long_requests import Entries, LongRequests
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient
from tests.unit.broker.test_long_requests import known_things

ROUTES = ROUTES_ON[ListenerType.BROKER]

KERNEL_BYTES = 4 * 1024
# Of the shortest answers it takes thousands to fill what may be unread.
REQUESTS = 8_000
REQUEST_BYTES = 4 * 1024 * 1024
QUIET_TURNS = 15
PATHS = {9: ("groups",), 3: ("topics",)}


@asynccontextmanager
async def deaf_client(node: Node) -> AsyncIterator[tuple[socket.socket, Connection]]:
    """A socket that nobody reads from, with next to nothing in the kernel; the broker's end."""
    (listener,) = node.listeners
    before = set(listener.connections)
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        await asyncio.get_running_loop().sock_connect(client, node.addresses["PLAINTEXT"])
        while not (new := set(listener.connections) - before):
            await asyncio.sleep(0)
        (connection,) = new
        assert connection._transport is not None
        theirs = connection._transport.get_extra_info("socket")
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        yield client, connection


def held_bytes(connection: Connection) -> int:
    """What the broker keeps for this client of answers that are complete."""
    assert connection._transport is not None
    waiting = sum(
        sum(map(len, answer.parts)) for answer in connection._slots if answer.parts is not None
    )
    return connection._transport.get_write_buffer_size() + waiting


async def settled(connection: Connection) -> int:
    """The most that was held, once nothing happens any more."""
    quiet, most, before = 0, 0, (-1, -1)
    while quiet < QUIET_TURNS:
        await asyncio.sleep(0.005)
        now = (held_bytes(connection), connection.unanswered)
        most = max(most, now[0])
        quiet = quiet + 1 if now == before else 0
        before = now
    return most


@pytest.mark.parametrize("api_key", ROUTES, ids=lambda key: ApiKey(key).name)
async def test_who_does_not_read_is_not_listened_to(tmp_path: Path, api_key: int) -> None:
    route = ROUTES[api_key]
    version = route.highest_version
    cls = route.load().request_class
    async with running_node(
        tmp_path,
        auto_create_topics_enable="false",
        group_initial_rebalance_delay_ms="0",
        log_flush_policy="os",
        offsets_topic_num_partitions="1",
    ) as node:
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            made = LongRequests(await known_things(node, client))
            request = made.request(cls, version, PATHS.get(api_key, ()), 1, Entries.ALL_OF_ONE)
            frame = encode_request(request, version, 1, "deaf")
            client.send_bytes(frame)
            try:
                answer_bytes = 4 + len(await client.receive_frame())
            except asyncio.IncompleteReadError:
                pytest.fail("the example is no request that is answered")
        count = min(REQUESTS, max(2, REQUEST_BYTES // answer_bytes), REQUEST_BYTES // len(frame))
        async with deaf_client(node) as (sock, connection):
            loop = asyncio.get_running_loop()
            sending = asyncio.create_task(loop.sock_sendall(sock, frame * count))
            most = await settled(connection)
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending
    # Those that were under way when the client was found to be slow are answered all the same.
    assert most <= TRANSPORT_BYTES + (UNANSWERED_MAX + 1) * answer_bytes
    assert most < count * answer_bytes or count * answer_bytes <= TRANSPORT_BYTES
