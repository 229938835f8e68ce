"""`headrace bench latency TOPIC`: how long one small produce takes, one at a time."""

import time
from typing import Annotated

import typer

from headrace.cli.bench.measurement import RecordCount, RecordSize, percentile, run, show
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Output,
    Topic,
    client_settings,
    wants_json,
)
from headrace.cli.output import progress_bar

WARM_UP = 50


def register(group: typer.Typer) -> None:
    group.command()(latency)


def latency(
    topic: Topic,
    records: RecordCount = 1_000,
    size: RecordSize = 100,
    acks: Annotated[str, typer.Option(metavar="all|1")] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Send one record, wait for its acknowledgement, send the next."""
    as_json = wants_json(output)
    times = sorted(run(_produce_singly(bootstrap, topic, records, size, acks)))
    results = {
        "records": len(times),
        "p50_ms": round(percentile(times, 0.50) * 1000, 3),
        "p90_ms": round(percentile(times, 0.90) * 1000, 3),
        "p99_ms": round(percentile(times, 0.99) * 1000, 3),
        "max_ms": round(times[-1] * 1000, 3),
    }
    show(f"one produce at a time to {topic}, acks={acks}", results, as_json=as_json)


async def _produce_singly(
    bootstrap: str, topic: str, records: int, size: int, acks: str
) -> list[float]:
    from headrace.client import AsyncClient, ProducerSettings

    if acks not in ("all", "1"):
        raise typer.BadParameter(f"{acks!r} is not all or 1", param_hint="--acks")
    settings = ProducerSettings(acks="all" if acks == "all" else 1, linger_ms=0)
    value = bytes(size)
    times = []
    async with (
        AsyncClient(client_settings(bootstrap)) as client,
        client.producer(settings) as producer,
    ):
        with progress_bar() as progress:
            task = progress.add_task("measuring", total=records)
            for number in range(-WARM_UP, records):
                started = time.perf_counter()
                await producer.send_and_wait(topic, value, partition=0)
                if number >= 0:
                    times.append(time.perf_counter() - started)
                    progress.advance(task)
    return times
