"""`headrace bench produce TOPIC`: records per second, acknowledged."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.bench.measurement import RecordCount, RecordSize, rates, run, show
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Output,
    Topic,
    client_settings,
    wants_json,
)
from headrace.cli.output import progress_bar
from headrace.cli.produce import settings_of

if TYPE_CHECKING:
    from headrace.client import ProducerSettings

CHUNK = 5_000
CHUNKS_IN_FLIGHT = 4


def register(group: typer.Typer) -> None:
    group.command()(produce)


def produce(
    topic: Topic,
    records: RecordCount = 200_000,
    size: RecordSize = 100,
    acks: Annotated[str, typer.Option(metavar="all|1|0")] = "all",
    codec: Annotated[str, typer.Option(metavar="none|gzip|snappy|lz4|zstd")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Publish records as fast as the broker acknowledges them."""
    as_json = wants_json(output)
    seconds = run(_produce(bootstrap, topic, records, size, settings_of(acks, codec)))
    show(f"produce {topic}, acks={acks}", rates(records, records * size, seconds), as_json=as_json)


async def _produce(
    bootstrap: str, topic: str, records: int, size: int, settings: "ProducerSettings"
) -> float:
    from headrace.client import AsyncClient

    value = bytes(size)
    async with (
        AsyncClient(client_settings(bootstrap)) as client,
        client.producer(settings) as producer,
    ):
        await producer.send_and_wait(topic, value)  # connections and ids are not what we measure
        with progress_bar() as progress:
            task = progress.add_task("producing", total=records)
            started = time.perf_counter()
            in_flight: list[list[asyncio.Future[Any]]] = []
            for first in range(0, records, CHUNK):
                count = min(CHUNK, records - first)
                in_flight.append([await producer.send(topic, value) for _ in range(count)])
                if len(in_flight) >= CHUNKS_IN_FLIGHT:
                    await asyncio.gather(*in_flight.pop(0))
                progress.advance(task, count)
            for chunk in in_flight:
                await asyncio.gather(*chunk)
            return time.perf_counter() - started
