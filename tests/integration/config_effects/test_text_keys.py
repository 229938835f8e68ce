"""What the keys of the text listener change."""

import socket
import subprocess
import sys
from pathlib import Path

from headrace.testing import Broker
from tests.support.brokers import HOST, HeadraceProcess
from tests.support.config_effects import effect_of
from tests.support.processes import accepts, free_port
from tests.support.text_client import TextClient


@effect_of("text.listener")
def test_the_text_listener_is_where_it_is_told_or_nowhere(tmp_path: Path) -> None:
    port = free_port(HOST)
    broker = HeadraceProcess(tmp_path / "data", {"text.listener": f"{HOST}:{port}"})
    broker.launch()
    try:
        broker.wait_until_ready()
        while not accepts(HOST, port):
            assert broker.running
        assert f"nc {HOST} {port}" in broker.log_path.read_text()
    finally:
        broker.stop()
    shut = HeadraceProcess(tmp_path / "shut", {"text.listener": "off"})
    shut.start()
    shut.stop()
    assert "nc " not in shut.log_path.read_text()


def test_an_address_that_is_taken_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        options = ["--data-dir", str(tmp_path), "--listen", f"{HOST}:{free_port(HOST)}"]
        command = [sys.executable, "-m", "headrace", "serve", *options]
        command += ["--http", "off", "--text", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "--text off" in done.stderr


@effect_of("text.max.connections")
async def test_so_many_clients_and_no_more() -> None:
    with Broker(text=True, settings={"text.max.connections": 1}) as broker:
        async with TextClient(*broker.text_address) as one:
            await one.ok("TOPICS")
            async with TextClient(*broker.text_address) as two:
                assert (await two.line()).startswith("ERR TOO_MANY_CONNECTIONS")


@effect_of("text.idle.timeout.ms")
async def test_silent_clients_are_cut_off_in_time() -> None:
    with Broker(text=True, settings={"text.idle.timeout.ms": 200}) as broker:
        async with TextClient(*broker.text_address) as client:
            assert await client.is_closed()


@effect_of("text.max.line.bytes", "text.max.payload.bytes")
async def test_lines_and_payloads_are_bounded() -> None:
    bounds = {"text.max.line.bytes": 100, "text.max.payload.bytes": 2000}
    with Broker(text=True, settings=bounds) as broker:
        async with TextClient(*broker.text_address) as client:
            await client.ok("PUBLISH t LENGTH 2000\n" + "x" * 2000)
            assert (await client.ask("PUBLISH t " + "x" * 100))[0].startswith("ERR LINE_TOO_LONG")
        async with TextClient(*broker.text_address) as client:
            [refused] = await client.ask("PUBLISH t LENGTH 2001")
            assert refused.startswith("ERR MESSAGE_TOO_LARGE")
