"""Rows about rates: produce and consume as fast as the client can, and what that costs the broker.

Measures are named `produce 100 B acks=1: MB/s`, `…: MB per CPU second`, `…: client CPU share`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from bench.driver import Outcome
from bench.readings import Readings
from bench.sides import Side, in_turn

SIZES = (100, 1024)
_PRODUCE_BYTES = {100: 120_000_000, 1024: 400_000_000}
_CONSUME_BYTES = {100: 150_000_000, 1024: 600_000_000}
_CONSUME_PARTITIONS: Final = 4
# What consumers are given that read much, and what librdkafka asks for by itself.
FETCHES: Final[dict[str, dict[str, int]]] = {
    "large fetches": {
        "fetch.max.bytes": 50 << 20,
        "fetch.message.max.bytes": 8 << 20,
    },
    "1 MB fetches": {},
}


def size_name(size: int) -> str:
    """`100 B` or `1 KB`, as in the table of rows."""
    return f"{size} B" if size < 1024 else f"{size // 1024} KB"


def records(byte_counts: dict[int, int], size: int) -> int:
    """How many records of a size make one run, in whole chunks of the driver."""
    return byte_counts[size] // size // 5_000 * 5_000


def warm_up(sides: Sequence[Side], rounds: int) -> None:
    """A JVM's first runs are two to three times slower than its later ones."""
    for number in range(rounds):
        for side in sides:
            for size in SIZES:
                topic = f"warm-{size}-{number}"
                count = records(_PRODUCE_BYTES, size) // 2 // 5_000 * 5_000
                side.create_topic(topic)
                side.drive("produce", topic=topic, size=size, count=count, acks="all")
                side.drive("consume", topic=topic, count=count)
                side.delete_topic(topic)


def measure_produce(sides: list[Side], pairs: int, readings: Readings) -> None:
    """Both sizes with acks=1 and acks=all."""
    for size in SIZES:
        for acks in ("1", "all"):
            for pair, order in in_turn(sides, pairs):
                for side in order:
                    _produce_once(side, size, acks, pair, readings)


def _produce_once(side: Side, size: int, acks: str, pair: int, readings: Readings) -> None:
    topic = f"produce-{size}-{acks}-{pair}"
    side.create_topic(topic)
    # What earlier runs left in the page cache is written now, not on this run's account.
    os.sync()
    count = records(_PRODUCE_BYTES, size)
    outcome = side.drive("produce", topic=topic, size=size, count=count, acks=acks)
    _note(f"produce {size_name(size)} acks={acks}", side.name, outcome, size, readings)
    side.delete_topic(topic)


def measure_consume(sides: list[Side], pairs: int, readings: Readings) -> None:
    """Read back a topic of four partitions, filled once per side."""
    for size in SIZES:
        topic, count = f"consume-{size}", records(_CONSUME_BYTES, size)
        partitions = _CONSUME_PARTITIONS
        for side in sides:
            side.create_topic(topic, partitions)
            side.drive(
                "produce", topic=topic, size=size, count=count, acks="all", partitions=partitions
            )
        os.sync()
        for name, settings in FETCHES.items():
            for _, order in in_turn(sides, pairs):
                for side in order:
                    outcome = side.drive(
                        "consume",
                        topic=topic,
                        count=count,
                        partitions=partitions,
                        settings=settings,
                    )
                    measure = f"consume {size_name(size)}, {name}"
                    _note(measure, side.name, outcome, size, readings)
        for side in sides:
            side.delete_topic(topic)


def _note(measure: str, side: str, outcome: Outcome, size: int, readings: Readings) -> None:
    megabytes = outcome.count * size / 1e6
    readings.add(f"{measure}: MB/s", side, megabytes / outcome.seconds)
    per_cpu = megabytes / max(outcome.broker_cpu_seconds, 1e-9)
    readings.add(f"{measure}: MB per CPU second", side, per_cpu)
    readings.add(f"{measure}: client CPU share", side, outcome.client_cpu_share)
