"""Kafka clients are served while clients of the text listener do their worst."""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from headrace.client import AsyncClient, NewTopic, ProducerSettings
from tests.support.brokers import HOST, HeadraceProcess
from tests.support.processes import accepts, free_port
from tests.support.text_client import TextClient

PRODUCES = 200
# What a busy test machine allows for; the bar itself is measured by the benchmark.
MEDIAN_SECONDS, WORST_SECONDS = 0.1, 3.0
MEMORY_BYTES = 60 * 2**20


async def pipelining(port: int) -> None:
    """PUBLISH lines without end."""
    async with TextClient(HOST, port) as client:
        while True:
            client.write(b"PUBLISH flood %b\n" % (b"x" * 100) * 500)
            await client.writer.drain()
            await client.reader.read(65536)


async def not_reading(port: int) -> None:
    """Everything there is, asked for again and again and never looked at."""
    async with TextClient(HOST, port) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            client.write("CONSUME flood\n")
            await asyncio.sleep(0.01)


async def nonsense(port: int, chance: random.Random) -> None:
    while True:
        async with TextClient(HOST, port) as client:
            client.write(chance.randbytes(50_000))
            with suppress(OSError):
                await client.reader.read(65536)


@asynccontextmanager
async def besieged(port: int) -> AsyncIterator[None]:
    chance = random.Random(3)
    attacks = [pipelining(port), pipelining(port), not_reading(port), not_reading(port)]
    attacks += [nonsense(port, chance), nonsense(port, chance)]
    tasks = [asyncio.create_task(attack) for attack in attacks]
    try:
        await asyncio.sleep(0.3)
        yield
        assert not any(task.done() for task in tasks), [t.exception() for t in tasks if t.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_small_produces_go_on_and_memory_stays_bounded(tmp_path: Path) -> None:
    port = free_port(HOST)
    broker = HeadraceProcess(tmp_path / "data", {"text.listener": f"{HOST}:{port}"})
    broker.start()
    try:
        while not accepts(HOST, port):
            assert broker.running
        async with AsyncClient(broker.bootstrap_servers) as client:
            await client.admin.create_topics([NewTopic("small", 1)])
            async with client.producer(ProducerSettings(linger_ms=0)) as producer:
                await (await producer.send("small", b"v"))
                before = broker.memory().anonymous
                taken: list[float] = []
                async with besieged(port):
                    for _ in range(PRODUCES):
                        started = time.monotonic()
                        await (await producer.send("small", b"v"))
                        taken.append(time.monotonic() - started)
                grown = broker.memory().anonymous - before
        assert statistics.median(taken) < MEDIAN_SECONDS
        assert max(taken) < WORST_SECONDS
        assert grown < MEMORY_BYTES
    finally:
        assert broker.stop() == 0
