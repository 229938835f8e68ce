"""Clients of HTTP and text that ask and never read: every GET, every command."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.node.node import Node
from headrace.text.connection import TextConnection
from headrace.text.session import HELP
from headrace.web.app import OPERATIONS
from headrace.web.server import HttpConnection
from tests.support.nodes import running_node

KERNEL_BYTES = 4 * 1024
# Less than outside the tests, so that little has to be asked for.
UNSENT_BYTES = 16 * 1024
# One answer, or those to one slice of commands that came together.
AT_ONCE_BYTES = 32 * 1024
ASKED_FOR_BYTES = 6 * (UNSENT_BYTES + AT_ONCE_BYTES)
QUIET_TURNS = 20
PARTS = {
    "topic": "t", "partition": "0", "group": "g", "instance": "nobody", "broker": "0",
    "asset": "page.js",
}  # fmt: skip
# Ends only when its client leaves; `tests/integration/web/test_many_streams.py` has slow readers.
ENDLESS = {"/topics/{topic}/stream"}
GETS = sorted(each.path for each in OPERATIONS if each.method == "GET" and each.path not in ENDLESS)
# They end the conversation, or wait for records.
NOT_AGAIN = {"QUIT", "POLL"}
NOT_TOLD = {"HELP", "STOP"}
# JOIN, LEAVE and CREATE are refused here each time, and who is refused so often is hung up on.
COMMANDS = {
    "PUBLISH": "PUBLISH t x", "CONSUME": "CONSUME t FROM BEGINNING LIMIT 1", "JOIN": "JOIN",
    "COMMIT": "COMMIT g t 0 1", "OFFSETS": "OFFSETS g", "RESET": "RESET g t TO BEGINNING",
    "CREATE": "CREATE t", "DESCRIBE": "DESCRIBE t", "TOPICS": "TOPICS", "GROUPS": "GROUPS",
    "HELP": "HELP", "LEAVE": "LEAVE", "STOP": "STOP",
}  # fmt: skip


@asynccontextmanager
async def node_with_extra_listeners(directory: Path) -> AsyncIterator[Node]:
    async with running_node(
        directory,
        http_listener="127.0.0.1:0",
        text_listener="127.0.0.1:0",
        log_flush_policy="os",
    ) as node:
        await node.controller.submit(CreateTopics((TopicToCreate("t", 50, 1),)))
        await node.open_extra_listeners()
        yield node


def http_connections(node: Node) -> Iterable[Any]:
    assert node.extra_listeners is not None
    assert node.extra_listeners._web is not None
    return node.extra_listeners._web._server_state.connections


def text_connections(node: Node) -> Iterable[Any]:
    assert node.extra_listeners is not None
    assert node.extra_listeners._text is not None
    return node.extra_listeners._text._connections


@asynccontextmanager
async def deaf_client(
    address: tuple[str, int], connections: Callable[[], Iterable[Any]]
) -> AsyncIterator[tuple[socket.socket, asyncio.Transport]]:
    """A socket that nobody reads from, with next to nothing in the kernel; the server's end."""
    before = set(connections())
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        await asyncio.get_running_loop().sock_connect(client, address)
        while not (new := set(connections()) - before):
            await asyncio.sleep(0)
        (connection,) = new
        transport = connection.transport if isinstance(connection, HttpConnection) else None
        if isinstance(connection, TextConnection):
            transport = connection._transport
        assert transport is not None
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        theirs = transport.get_extra_info("socket")
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        yield client, transport


async def most_held(client: socket.socket, transport: asyncio.Transport, data: bytes) -> int:
    """What the listener keeps at the most for a client that has sent all this, or as much as it
    would take, and reads nothing."""
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(client, data))
    most, quiet, before = 0, 0, -1
    while quiet < QUIET_TURNS and not transport.is_closing():
        await asyncio.sleep(0.005)
        now = transport.get_write_buffer_size()
        most = max(most, now)
        quiet = quiet + 1 if now == before and now else 0
        before = now
    sending.cancel()
    with suppress(asyncio.CancelledError, OSError):
        await sending
    return most


async def answer_to(address: tuple[str, int], request: bytes, *, ends: bool) -> int:
    """How many bytes come back until the server hangs up."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    if ends:
        writer.write_eof()
    async with asyncio.timeout(20):
        size = len(await reader.read())
    writer.close()
    return size


@pytest.mark.parametrize("path", GETS)
async def test_http_answers_that_nobody_reads_stop_the_next_requests(
    tmp_path: Path, path: str
) -> None:
    named = re.sub(r"\{(\w+)\}", lambda part: PARTS[part[1]], path)
    request = f"GET {named} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    last = request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with node_with_extra_listeners(tmp_path) as node:
        assert node.extra_listeners is not None
        address = node.extra_listeners.http
        assert address is not None
        size = await answer_to(address, last, ends=False)
        assert size > 0
        count = max(3, ASKED_FOR_BYTES // size)
        async with deaf_client(address, lambda: http_connections(node)) as (client, transport):
            held = await most_held(client, transport, request * count)
    assert held <= UNSENT_BYTES + max(AT_ONCE_BYTES, 2 * size)


def test_every_command_of_the_text_protocol_has_an_example() -> None:
    told = set(re.findall(r"(?:^|; )([A-Z]{3,})\b", HELP, re.MULTILINE))
    assert told - NOT_AGAIN == set(COMMANDS) - NOT_TOLD


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
async def test_text_answers_that_nobody_reads_stop_the_next_commands(
    tmp_path: Path, line: str
) -> None:
    async with node_with_extra_listeners(tmp_path) as node:
        assert node.extra_listeners is not None
        address = node.extra_listeners.text
        assert address is not None
        size = await answer_to(address, line.encode() + b"\n", ends=True)
        assert size > 0
        count = max(3, ASKED_FOR_BYTES // size)
        async with deaf_client(address, lambda: text_connections(node)) as (client, transport):
            held = await most_held(client, transport, (line.encode() + b"\n") * count)
    assert held <= UNSENT_BYTES + max(AT_ONCE_BYTES, 2 * size)
