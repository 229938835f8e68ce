"""`headrace gateway`: HTTP and text for a broker in another process."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.testing import Broker
from tests.support.processes import ServerProcess, accepts, free_port
from tests.support.text_client import TextClient

HOST = "127.0.0.1"
COMMAND = [sys.executable, "-m", "headrace", "gateway"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


async def test_both_listeners_lead_to_the_same_cluster(broker: Broker, tmp_path: Path) -> None:
    http, text = free_port(HOST), free_port(HOST)
    command = [*COMMAND, "--bootstrap-servers", broker.bootstrap_servers]
    command += ["--http", f"{HOST}:{http}", "--text", f"{HOST}:{text}"]
    gateway = ServerProcess("headrace gateway", command, tmp_path / "gateway.out")
    gateway.start()
    try:
        gateway.wait_until(lambda: accepts(HOST, text) and accepts(HOST, http), 30)
        async with TextClient(HOST, text) as client:
            await client.ok("PUBLISH orders hello")
        assert httpx.get(f"http://{HOST}:{http}/topics").json() == ["orders"]
    finally:
        assert gateway.stop() == 0
    assert f"http://{HOST}:{http}" in gateway.log_tail()


@pytest.mark.parametrize("is_listening", [False, True])
async def test_that_no_broker_answers_is_told_soon(is_listening: bool, tmp_path: Path) -> None:
    """Whether nobody listens there, or somebody who never says a word."""
    http, text = free_port(HOST), free_port(HOST)
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        if is_listening:
            silent.listen(16)
        command = [*COMMAND, "--bootstrap-servers", f"{HOST}:{silent.getsockname()[1]}"]
        command += ["--http", f"{HOST}:{http}", "--text", f"{HOST}:{text}", "--timeout", "0.5"]
        gateway = ServerProcess("headrace gateway", command, tmp_path / "gateway.out")
        gateway.start()
        try:
            gateway.wait_until(lambda: accepts(HOST, text) and accepts(HOST, http), 30)
            paths = ("/topics", "/topics/orders/partitions/0/records", "/groups/team/offsets")
            for path in paths:
                answer = httpx.get(f"http://{HOST}:{http}{path}", timeout=10)
                assert (answer.status_code, answer.json()["error_code"]) == (500, 50003)
                assert "no broker reached" in answer.json()["message"]
            async with asyncio.timeout(20), TextClient(HOST, text) as client:
                for line in ("TOPICS", "CONSUME orders", "OFFSETS team"):
                    (told,) = await client.ask(line)
                    assert told.startswith("ERR ")
                    assert "no broker reached" in told
        finally:
            assert gateway.stop() == 0


async def test_a_publish_is_not_tried_for_longer_than_told(broker: Broker, tmp_path: Path) -> None:
    text = free_port(HOST)
    command = [*COMMAND, "--bootstrap-servers", broker.bootstrap_servers, "--timeout", "0.5"]
    command += ["--http", "off", "--text", f"{HOST}:{text}"]
    gateway = ServerProcess("headrace gateway", command, tmp_path / "gateway.out")
    gateway.start()
    try:
        gateway.wait_until(lambda: accepts(HOST, text), 30)
        async with asyncio.timeout(15), TextClient(HOST, text) as client:
            while not (await client.ask("PUBLISH orders hello"))[0].startswith("OK"):
                pass  # half a second is little for a first answer on a busy machine
            broker.kill()
            (told,) = await client.ask("PUBLISH orders again")
            assert told.startswith("ERR ")
            broker.start()
            while not (await client.ask("PUBLISH orders again"))[0].startswith("OK"):
                await asyncio.sleep(0.05)
    finally:
        assert gateway.stop() == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--http", "off", "--text", "off"], 2, "both listeners are off"),
        (["--text", "nowhere"], 2, "--text"),
        (["--set", "log.dirs=x"], 2, "not about the HTTP or text listener"),
        (["--set", "text.max.line.bytes=1"], 1, "text.max.line.bytes"),
    ],
)
def test_wrong_usage_is_told(options: list[str], code: int, said: str) -> None:
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_an_address_that_is_taken_is_told(broker: Broker) -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        command = [*COMMAND, "-b", broker.bootstrap_servers, "--http", "off", "--text", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"text.listener: {address} is taken by another program" in done.stderr
    assert "choose another address with --text" in done.stderr


def test_the_old_name_of_the_command_works_with_a_warning() -> None:
    old = [*COMMAND[:-1], "doors", "--text", "nowhere"]
    done = subprocess.run(old, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "`headrace doors` is now `headrace gateway`" in done.stderr
    assert "--text" in done.stderr


def test_keys_by_old_names_are_taken_with_a_warning() -> None:
    both = ["--set", "http.streams.max=1", "--text", "off", "--http", "off"]
    done = subprocess.run([*COMMAND, *both], capture_output=True, text=True, timeout=60)
    assert "both listeners are off" in done.stderr
    assert "key=http.streams.max new=http.max.streams" in done.stderr


def test_the_old_name_of_the_command_is_not_in_the_help() -> None:
    done = subprocess.run([*COMMAND[:-1], "--help"], capture_output=True, text=True, timeout=60)
    assert "gateway" in done.stdout
    assert "doors" not in done.stdout
