"""A gateway in a process of its own lives through the death of its broker, and brokers stop with
clients connected."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import HOST, HeadraceProcess
from tests.support.gateways import QUICK_GROUPS
from tests.support.processes import ServerProcess, accepts, free_port
from tests.support.text_client import TextClient

START_SECONDS = 30
STOP_SECONDS = 10
HEAL_SECONDS = 30


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HeadraceProcess]:
    made = HeadraceProcess(tmp_path / "data", QUICK_GROUPS)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def text_address(broker: HeadraceProcess, tmp_path: Path) -> Iterator[tuple[str, int]]:
    port = free_port(HOST)
    command = [sys.executable, "-m", "headrace", "gateway", "-b", broker.bootstrap_servers]
    command += ["--http", "off", "--text", f"{HOST}:{port}"]
    process = ServerProcess("headrace gateway", command, tmp_path / "gateway.out")
    process.start()
    process.wait_until(lambda: accepts(HOST, port), START_SECONDS)
    yield HOST, port
    assert process.stop() == 0


async def publish_until_taken(client: TextClient, line: str) -> None:
    async with asyncio.timeout(HEAL_SECONDS):
        while not (await client.ask(line))[0].startswith("OK"):
            await asyncio.sleep(0.1)


async def test_clients_of_the_gateway_go_on_when_the_broker_is_back(
    broker: HeadraceProcess, text_address: tuple[str, int]
) -> None:
    async with TextClient(*text_address) as client, TextClient(*text_address) as streaming:
        await client.ok("PUBLISH orders one")
        await client.ok("PUBLISH shared first")
        await client.ok("JOIN team shared")
        assert await client.ok("POLL WAIT 5000") == ["MESSAGE shared 0 0 :first"]
        streaming.write("CONSUME orders FOLLOW\n")
        assert await streaming.line() == "MESSAGE orders 0 0 :one"
        broker.kill()
        await asyncio.to_thread(broker.start)
        await publish_until_taken(client, "PUBLISH orders two")
        assert await streaming.line() == "MESSAGE orders 0 1 :two"
        await publish_until_taken(client, "PUBLISH shared second")
        found: list[str] = []
        async with asyncio.timeout(HEAL_SECONDS):
            while "MESSAGE shared 0 1 :second" not in found:
                found += (await client.ask("POLL WAIT 1000"))[:-1]


async def test_a_broker_stops_in_order_with_clients_connected(tmp_path: Path) -> None:
    port = free_port(HOST)
    broker = HeadraceProcess(tmp_path / "data", {**QUICK_GROUPS, "text.listener": f"{HOST}:{port}"})
    broker.start()
    try:
        while not accepts(HOST, port):
            assert broker.running
        async with (
            TextClient(HOST, port) as member,
            TextClient(HOST, port) as streaming,
            TextClient(HOST, port) as stuck,
        ):
            await member.ok("PUBLISH orders v")
            await member.ok("JOIN team orders")
            streaming.write("CONSUME orders FOLLOW\n")
            await streaming.line()
            stuck.write("PUBLISH orders LENGTH 1000\nhalf")
            started = time.monotonic()
            assert await asyncio.to_thread(broker.stop) == 0
            assert time.monotonic() - started < STOP_SECONDS
            assert await streaming.is_closed()
    finally:
        broker.kill()
    assert "Traceback" not in broker.log_path.read_text()
