"""`headrace bench consume TOPIC`: records per second, read from the beginning."""

import time
from typing import Annotated

import typer

from headrace.cli.bench.measurement import rates, run, show
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Output,
    Topic,
    client_settings,
    wants_json,
)
from headrace.cli.output import progress_bar


def register(group: typer.Typer) -> None:
    group.command()(consume)


def consume(
    topic: Topic,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode every record, not only fetch batches.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Read a topic from beginning to end."""
    as_json = wants_json(output)
    records, size_bytes, seconds = run(_consume(bootstrap, topic, decode=decode))
    if not records:
        raise typer.BadParameter(f"{topic} is empty; fill it with `headrace bench produce {topic}`")
    show(f"consume {topic}", rates(records, size_bytes, seconds), as_json=as_json)


async def _consume(bootstrap: str, topic: str, *, decode: bool) -> tuple[int, int, float]:
    """Offsets covered, record bytes (without `decode`: bytes fetched) and seconds."""
    from headrace.client import EARLIEST, LATEST, AsyncClient, TopicPartition

    async with AsyncClient(client_settings(bootstrap)) as client:
        described = (await client.admin.describe_topics([topic]))[topic]
        partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
        starts = await client.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await client.admin.list_offsets(dict.fromkeys(partitions, LATEST))
        left = {each for each in partitions if starts[each].offset < ends[each].offset}
        total = sum(ends[each].offset - starts[each].offset for each in left)
        size_bytes = 0
        started = time.perf_counter()
        with progress_bar() as progress:
            task = progress.add_task("consuming", total=total)
            async with client.reader(dict.fromkeys(left, EARLIEST)) as reader:
                while left:
                    if decode:
                        for records in (await reader.poll(timeout_ms=1000)).values():
                            size_bytes += sum(len(record.value or b"") for record in records)
                    else:
                        chunks = await reader.fetch(timeout_ms=1000)
                        size_bytes += sum(len(chunk.data) for chunk in chunks)
                    done = 0
                    for each in partitions:
                        if each in left:
                            position = await reader.position(each)
                            if position >= ends[each].offset:
                                left.discard(each)
                            done += position - ends[each].offset
                    progress.update(task, completed=total + done)
        return total, size_bytes, time.perf_counter() - started
