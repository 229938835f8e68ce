"""What clients cannot do to the text listener, to each other, or to the broker."""

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.gateway import Gateway, OutRecord
from headrace.text.server import TextServer, TextSettings, serve
from headrace.text.session import TextSession
from tests.support.gateways import gateway_of
from tests.support.processes import memory
from tests.support.text_client import TextClient

SECONDS = 20


@asynccontextmanager
async def server_with(
    directory: Path, **settings: float
) -> AsyncIterator[tuple[Gateway, TextServer]]:
    async with gateway_of("local", directory) as gateway:
        server = await serve(gateway, TextSettings(port=0, **settings))  # type: ignore[arg-type]  # numbers
        try:
            yield gateway, server
        finally:
            await server.close()


def client_of(server: TextServer) -> TextClient:
    return TextClient(server.host, server.port)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("verb", ["GET", "POST", "OPTIONS"])
async def test_an_http_request_is_hung_up_on_and_does_nothing(tmp_path: Path, verb: str) -> None:
    """A page in a browser could send our commands in the body of a request."""
    async with server_with(tmp_path) as (gateway, server), client_of(server) as client:
        body = "PUBLISH orders from a browser\r\n"
        client.write(f"{verb} / HTTP/1.1\r\nHost: localhost\r\n\r\n{body}")
        assert await client.line() == ""
        assert await gateway.admin.list_topics() == []


async def test_a_line_without_end_is_refused_and_cut_off(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, line_bytes_max=1000) as (_, server),
        client_of(server) as client,
    ):
        client.write("x" * 5000)
        assert (await client.line()).startswith("ERR LINE_TOO_LONG")
        assert await client.is_closed()


CLOSED = "; this connection is closed"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"x" * 300_000, "LINE_TOO_LONG"),
        (b"PUBLISH orders LENGTH 99999999\n" + b"x" * 300_000, "MESSAGE_TOO_LARGE"),
        (b"PUBLISH orders LENGTH many\n" + b"x\n" * 100_000, "INVALID_REQUEST"),
        (b"PUBLISH orders LENGTH 3\n" + b"x" * 300_000, "INVALID_REQUEST"),
        (b"nonsense\n" * 30_000, "TOO_MANY_ERRORS"),
    ],
    ids=["a line", "a payload", "no length", "a wrong length", "nonsense"],
)
async def test_who_is_hung_up_on_is_told_so_however_much_was_sent(
    tmp_path: Path, sent: bytes, code: str
) -> None:
    """Bytes that nobody reads must not cost the client the reason."""
    async with (
        server_with(tmp_path, line_bytes_max=1000) as (_, server),
        client_of(server) as client,
    ):
        client.write(sent)
        lines = [await client.line()]
        while not lines[-1].endswith(CLOSED):
            assert lines[-1].startswith("ERR "), lines
            lines.append(await client.line())
        assert lines[-1].startswith(f"ERR {code} ")
        assert await client.line() == ""
        for _ in range(3):
            client.write(b"still talking\n")
            await client.writer.drain()
            await asyncio.sleep(0.01)
        client.writer.close()
        await until(lambda: server.connections == 0)


async def test_a_fault_of_ours_is_told_before_the_connection_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> bytes:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(TextSession, "_topics", broken)
    async with server_with(tmp_path) as (_, server), client_of(server) as client:
        (told,) = await client.ask("TOPICS")
        assert told.startswith("ERR UNKNOWN_SERVER_ERROR ")
        assert told.endswith(CLOSED)
        assert await client.line() == ""
    assert "broken on purpose" in caplog.text


async def test_half_payloads_of_all_clients_together_are_bounded(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, held_bytes_max=100_000) as (_, server),
        client_of(server) as first,
        client_of(server) as second,
    ):
        for client in (first, second):
            client.write(b"PUBLISH orders LENGTH 70001\n" + b"x" * 70_000)
            await until(lambda: server.held_bytes > 60_000)
        assert (await second.line()).startswith("ERR TOO_MUCH_AT_ONCE")
        assert await second.is_closed()
        assert await first.ask(b"x") == ["OK partition=0 offset=0"]
        assert server.held_bytes == 0


async def test_a_silent_client_is_cut_off_and_a_follower_is_not(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, idle_seconds=0.3) as (gateway, server),
        client_of(server) as silent,
        client_of(server) as half,
        client_of(server) as streaming,
    ):
        await gateway.produce("orders", [OutRecord(b"v")])
        streaming.write("CONSUME orders FOLLOW\n")
        half.write("PUBLISH orders half a line")
        for client in (silent, half):
            told = await client.line()
            assert told.startswith("ERR SILENT_TOO_LONG ")
            assert told.endswith(CLOSED)
            assert await client.is_closed()
        await gateway.produce("orders", [OutRecord(b"w")])
        assert await streaming.line() == "MESSAGE orders 0 0 :v"
        assert await streaming.line() == "MESSAGE orders 0 1 :w"


async def test_one_client_too_many_is_told_so(tmp_path: Path) -> None:
    async with server_with(tmp_path, connections_max=2) as (_, server):
        async with client_of(server) as one, client_of(server) as two:
            await one.ok("TOPICS")
            await two.ok("TOPICS")
            async with client_of(server) as three:
                told = await three.line()
                assert told.startswith("ERR TOO_MANY_CONNECTIONS ")
                assert told.endswith(CLOSED)
                assert await three.is_closed()
        await until(lambda: server.connections == 0)
        async with client_of(server) as four:
            await four.ok("TOPICS")


async def test_somebody_who_only_writes_nonsense_is_hung_up_on(tmp_path: Path) -> None:
    async with server_with(tmp_path) as (_, server), client_of(server) as client:
        client.write("nonsense\n" * 1000)
        lines = [await client.line() for _ in range(51)]
        assert lines[-1].startswith("ERR TOO_MANY_ERRORS")
        assert await client.is_closed()


async def test_a_client_that_does_not_read_is_waited_for_in_bounded_memory(tmp_path: Path) -> None:
    async with server_with(tmp_path) as (gateway, server), client_of(server) as slow:
        for _ in range(30):
            await gateway.produce("orders", [OutRecord(b"x" * 1000)] * 900)
        gc.collect()
        before = memory(os.getpid()).anonymous
        sock = slow.writer.get_extra_info("socket")
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        slow.write("CONSUME orders\n" * 20)
        async with client_of(server) as other:
            for _ in range(50):
                await other.ok("PUBLISH others v")
                await asyncio.sleep(0.01)
        assert memory(os.getpid()).anonymous - before < 20 * 2**20
        slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert sock.fileno() >= 0
        for _ in range(27_000):
            assert (await slow.line()).startswith("MESSAGE")
        assert await slow.line() == "OK count=27000 next=0:27000"


async def test_a_client_that_never_reads_is_cut_off(tmp_path: Path) -> None:
    async with (
        server_with(tmp_path, idle_seconds=0.5) as (gateway, server),
        client_of(server) as slow,
    ):
        for _ in range(20):
            await gateway.produce("orders", [OutRecord(b"x" * 1000)] * 900)
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        slow.write("CONSUME orders\n")
        await until(lambda: server.connections == 0)


async def test_a_member_that_is_cut_off_leaves_its_group(tmp_path: Path) -> None:
    async with server_with(tmp_path) as (gateway, server):
        await gateway.produce("orders", [OutRecord(b"v")])
        async with client_of(server) as client:
            await client.ok("JOIN team orders")
            client.writer.transport.abort()

        async def members() -> int:
            return len((await gateway.admin.describe_groups(["team"]))["team"].members)

        async with asyncio.timeout(SECONDS):
            while await members():
                await asyncio.sleep(0.01)


async def test_random_bytes_hurt_nobody(tmp_path: Path) -> None:
    """Fifty clients of noise, cut anywhere and left in the middle; then one that makes sense."""
    chance = random.Random(7)
    words = [b"PUBLISH", b"orders", b"LENGTH", b"10", b"CONSUME", b"FOLLOW", b"JOIN", b"g", b"POLL"]
    words += [
        b"\n",
        b"\n",
        b'"',
        b"\\x",
        b"KEY",
        b"\0",
        b"\xff\xfe",
        b":",
        b"QUIT",
        b"RESET",
        b"TO",
    ]

    async def noise(server: TextServer) -> None:
        async with client_of(server) as client:
            for _ in range(chance.randrange(1, 8)):
                if chance.random() < 0.5:
                    client.write(chance.randbytes(chance.randrange(2000)))
                else:
                    client.write(b" ".join(chance.choices(words, k=chance.randrange(1, 60))))
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                client.writer.transport.abort()

    async with server_with(tmp_path) as (_, server):
        await asyncio.gather(*(noise(server) for _ in range(50)))
        async with client_of(server) as client:
            await client.ok("PUBLISH calm hello")
            assert await client.ok("CONSUME calm") == ["MESSAGE calm 0 0 :hello"]
        await until(lambda: server.connections == 0)


async def test_a_closed_listener_lets_go_of_everybody(tmp_path: Path) -> None:
    async with gateway_of("local", tmp_path) as gateway:
        server = await serve(gateway, TextSettings(port=0))
        async with client_of(server) as idle, client_of(server) as streaming:
            await idle.ok("PUBLISH orders v")
            streaming.write("CONSUME orders FOLLOW\n")
            await streaming.line()
            await idle.ok("JOIN team orders")
            await server.close()
            assert await idle.is_closed()
            assert await streaming.is_closed()
        described = await gateway.admin.describe_groups(["team"])
        assert list(described["team"].members) == []
