"""Rows about neighbours: one client is a burden to the broker; what do the others notice?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.driver import Outcome
from bench.readings import HEADRACE, Readings
from bench.sides import Side, discard, report_of

_DRIVER = "bench.beside_driver"
_READERS, _FETCH_BYTES = 60, 50 << 20
_UNREAD_PARTITIONS = 4
_UNREAD_SECONDS = 5.0
_DELETED_TOPICS, _DELETED_PARTITIONS = 10, 1_000
_FLUSHED_PARTITIONS, _FLUSH_ROUNDS = 1_000, 5
_RECORD_BYTES = 1024
_REMOVAL_SECONDS = 3.0


def measure_unread_answers(sides: list[Side], readings: Readings) -> None:
    """Sixty readers that ask for 50 MB each and read nothing; a produce now and then."""
    name = f"{_READERS} readers that read nothing"
    each_bytes = int(1.1 * _FETCH_BYTES)
    for side in sides:
        with _own_broker(side, "unread") as own:
            own.create_topic("large", _UNREAD_PARTITIONS)
            own.create_topic("small")
            own.drive(
                "produce",
                topic="large",
                size=_RECORD_BYTES,
                count=_UNREAD_PARTITIONS * each_bytes // _RECORD_BYTES // 5_000 * 5_000,
                acks="all",
                partitions=_UNREAD_PARTITIONS,
            )
            with _beside(own, "produces", topic="small", acks=1, every_ms=20) as taken:
                before = own.broker.memory().total
                with _beside(
                    own,
                    "unread",
                    topic="large",
                    partitions=_UNREAD_PARTITIONS,
                    readers=_READERS,
                    fetch_bytes=_FETCH_BYTES,
                ):
                    grown = _most_memory(own, _UNREAD_SECONDS) - before
            readings.add(f"{name}: memory MB", side.name, grown / 1e6)
            readings.add(f"{name}: slowest produce ms", side.name, max(taken.latencies_ms))


def _most_memory(side: Side, seconds: float) -> int:
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, side.broker.memory().total)
        time.sleep(0.05)
    return most


def measure_deletion(sides: list[Side], readings: Readings) -> None:
    """Ten topics of 1,000 partitions, each with a record, deleted by one request."""
    for side in sides:
        if side.name != HEADRACE:
            continue  # an absolute bar; Kafka takes minutes to make so many
        with _own_broker(side, "deletion") as own:
            topics = [f"deleted-{number}" for number in range(_DELETED_TOPICS)]
            for topic in topics:
                own.create_topic(topic, _DELETED_PARTITIONS)
                _flush_many(own, topic, _DELETED_PARTITIONS, 1)
            with _beside(own, "waits", every_ms=5) as waited:
                start = time.perf_counter()
                for done in own.admin.delete_topics(topics, operation_timeout=120).values():
                    done.result(120)
                taken = time.perf_counter() - start
                # Files are removed behind the answer.
                time.sleep(_REMOVAL_SECONDS)
            readings.add("delete 10,000 partitions: s", side.name, taken)
            longest = max(waited.latencies_ms)
            readings.add("delete 10,000 partitions: longest wait of others ms", side.name, longest)


def measure_flush(sides: list[Side], readings: Readings) -> None:
    """A durable produce to one partition beside requests that write to a thousand."""
    for side in sides:
        if side.name != HEADRACE:
            continue  # Kafka does not flush before it answers
        with _own_broker(side, "flush") as own:
            own.create_topic("many", _FLUSHED_PARTITIONS)
            own.create_topic("small")
            with _beside(own, "produces", topic="small", acks=-1, every_ms=5) as taken:
                rounds = _flush_many(own, "many", _FLUSHED_PARTITIONS, _FLUSH_ROUNDS)
            name = "one durable produce beside a flush of 1,000 partitions"
            readings.add(f"{name}: slowest ms", side.name, max(taken.latencies_ms))
            readings.add(f"{name}: the request of 1,000 ms", side.name, max(rounds.latencies_ms))


def _flush_many(side: Side, topic: str, partitions: int, rounds: int) -> Outcome:
    return side.drive("flush_many", _DRIVER, topic=topic, partitions=partitions, rounds=rounds)


@contextmanager
def _beside(side: Side, workload: str, **parameters: Any) -> Iterator[Outcome]:
    """A client that is at it during the block; what it found is known when the block has ended."""
    flag = side.broker.data_dir.with_suffix(f".{workload}-is-done")
    found = Outcome()
    with side.driver(workload, _DRIVER, flag=str(flag), **parameters) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield found
        finally:
            flag.touch()
        found.latencies_ms = report_of(process).latencies_ms
    flag.unlink()


@contextmanager
def _own_broker(side: Side, label: str) -> Iterator[Side]:
    """A broker of that side's kind on an empty directory, for one measurement."""
    broker = side.fresh(label, {})
    broker.start()
    try:
        yield Side(side.name, broker, side.fresh)
    finally:
        discard(broker)
