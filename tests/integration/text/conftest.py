"""The text listener in both forms: in the broker's process, and as `headrace gateway` beside it."""

import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.text.server import TextSettings, serve
from tests.support.brokers import HOST, HeadraceProcess
from tests.support.gateways import FORMS, QUICK_GROUPS, gateway_of
from tests.support.processes import ServerProcess, accepts, free_port
from tests.support.text_client import TextClient

Address = tuple[str, int]
START_SECONDS = 30


@pytest.fixture(scope="session")
def gateway_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A broker, and a text listener in another process."""
    directory = tmp_path_factory.mktemp("gateway")
    broker = HeadraceProcess(directory / "data", {"log.flush.policy": "os", **QUICK_GROUPS})
    broker.start()
    port = free_port(HOST)
    command = [sys.executable, "-m", "headrace", "gateway", "-b", broker.bootstrap_servers]
    command += ["--http", "off", "--text", f"{HOST}:{port}"]
    gateway = ServerProcess("headrace gateway", command, directory / "gateway.out")
    gateway.start()
    gateway.wait_until(lambda: accepts(HOST, port), START_SECONDS)
    yield HOST, port
    assert gateway.stop() == 0
    assert broker.stop() == 0


@pytest.fixture(params=FORMS)
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Address]:
    """Where a text listener listens."""
    if request.param == "remote":
        yield request.getfixturevalue("gateway_process")
        return
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_of("local", tmp_path))
        server = await serve(gateway, TextSettings(port=0))
        stack.push_async_callback(server.close)
        yield server.host, server.port


@pytest.fixture
async def client(address: Address) -> AsyncIterator[TextClient]:
    async with TextClient(*address) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"
