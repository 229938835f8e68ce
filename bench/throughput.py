"""Rows about rates: produce and consume as fast as the client can, and what that costs the broker.

Measures are named `produce 100 B acks=1: MB/s`, `…: MB per CPU second`, `…: client CPU share`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bench.driver import Outcome
from bench.readings import DURABLE, Readings
from bench.sides import Side, in_turn

SIZES = (100, 1024)
_PRODUCE_BYTES = {100: 120_000_000, 1024: 400_000_000}
_CONSUME_BYTES = {100: 150_000_000, 1024: 600_000_000}


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
    """Both sizes with acks=1 and acks=all; the durable side only with acks=all."""
    for size in SIZES:
        for acks in ("1", "all"):
            taking_part = [side for side in sides if acks == "all" or side.name != DURABLE]
            for pair, order in in_turn(taking_part, pairs):
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
    """Read back a topic filled once per side."""
    taking_part = [side for side in sides if side.name != DURABLE]
    for size in SIZES:
        topic, count = f"consume-{size}", records(_CONSUME_BYTES, size)
        for side in taking_part:
            side.create_topic(topic)
            side.drive("produce", topic=topic, size=size, count=count, acks="all")
        os.sync()
        for _, order in in_turn(taking_part, pairs):
            for side in order:
                outcome = side.drive("consume", topic=topic, count=count)
                _note(f"consume {size_name(size)}", side.name, outcome, size, readings)
        for side in taking_part:
            side.delete_topic(topic)


def _note(measure: str, side: str, outcome: Outcome, size: int, readings: Readings) -> None:
    megabytes = outcome.count * size / 1e6
    readings.add(f"{measure}: MB/s", side, megabytes / outcome.seconds)
    per_cpu = megabytes / max(outcome.broker_cpu_seconds, 1e-9)
    readings.add(f"{measure}: MB per CPU second", side, per_cpu)
    readings.add(f"{measure}: client CPU share", side, outcome.client_cpu_share)
