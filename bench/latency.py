"""Rows about waiting: one small produce at a time, and records on their way end to end."""

from __future__ import annotations

from bench.driver import Outcome
from bench.percentiles import percentile
from bench.readings import Readings
from bench.sides import Side, in_turn, report_of

_RECORD_BYTES = 100
_REQUESTS, _WARM_UP = 4_000, 500
_END_TO_END_SECONDS = 5.0
CLIENTS = {"produce_one": "client", "produce_raw": "bare socket"}
RATES = (1_000, 10_000)
UNREAD = "1,000/s acks=1, nobody reading"


def warm_up(sides: list[Side]) -> None:
    """Enough single produces for the JVM to compile that path."""
    for side in sides:
        side.create_topic("warm-one")
        for workload in CLIENTS:
            _one(side, workload, "warm-one", "all", count=6_000)
        side.delete_topic("warm-one")


def measure_one_at_a_time(sides: list[Side], pairs: int, readings: Readings) -> None:
    """p50, p99 and broker CPU of a produce that nothing runs beside."""
    for side in sides:
        side.create_topic("one-at-a-time")
    for acks in ("1", "all"):
        for workload, client in CLIENTS.items():
            measure = f"one produce acks={acks}, {client}"
            for _, order in in_turn(sides, pairs):
                for side in order:
                    outcome = _one(side, workload, "one-at-a-time", acks, _REQUESTS)
                    taken = outcome.latencies_ms
                    readings.add(f"{measure}: p50 ms", side.name, percentile(taken, 50))
                    readings.add(f"{measure}: p99 ms", side.name, percentile(taken, 99))
                    cpu_us = outcome.broker_cpu_seconds / outcome.count * 1e6
                    readings.add(f"{measure}: CPU us per request", side.name, cpu_us)
    for side in sides:
        side.delete_topic("one-at-a-time")


def _one(side: Side, workload: str, topic: str, acks: str, count: int) -> Outcome:
    return side.drive(
        workload, topic=topic, size=_RECORD_BYTES, count=count, warm_up=_WARM_UP, acks=acks
    )


def measure_end_to_end(sides: list[Side], pairs: int, readings: Readings) -> None:
    """From the producer's call to the consumer's, in two client processes, linger 0."""
    for rate in RATES:
        for acks in ("1", "all"):
            for pair, order in in_turn(sides, pairs):
                for side in order:
                    _end_to_end(side, rate, acks, pair, readings)
    for pair, order in in_turn(sides, pairs):
        for side in order:
            _unread(side, pair, readings)


def _end_to_end(side: Side, rate: int, acks: str, pair: int, readings: Readings) -> None:
    topic, count = f"end-to-end-{rate}-{acks}-{pair}", int(rate * _END_TO_END_SECONDS)
    side.create_topic(topic)
    with side.driver("stamped", topic=topic, count=count) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        sent = side.drive("paced", topic=topic, rate=rate, seconds=_END_TO_END_SECONDS, acks=acks)
        got = report_of(reader)
    measure = f"end to end {rate:,}/s acks={acks}"
    taken = got.latencies_ms
    quarter = max(1, len(taken) // 4)
    readings.add(f"{measure}: p50 ms", side.name, percentile(taken, 50))
    readings.add(f"{measure}: p99 ms", side.name, percentile(taken, 99))
    readings.add(f"{measure}: delivered share", side.name, got.count / sent.count)
    _note_cpu(measure, side.name, sent, readings)
    # A backlog that grows shows as a last quarter slower than the first.
    growth = percentile(taken[-quarter:], 50) - percentile(taken[:quarter], 50)
    readings.add(f"{measure}: growth ms", side.name, growth)
    side.delete_topic(topic)


def _unread(side: Side, pair: int, readings: Readings) -> None:
    """What a record costs the broker when no reader waits at the end."""
    topic = f"unread-{pair}"
    side.create_topic(topic)
    sent = side.drive("paced", topic=topic, rate=1_000, seconds=_END_TO_END_SECONDS, acks="1")
    _note_cpu(UNREAD, side.name, sent, readings)
    side.delete_topic(topic)


def _note_cpu(measure: str, side: str, sent: Outcome, readings: Readings) -> None:
    cpu_us = sent.broker_cpu_seconds / sent.count * 1e6
    readings.add(f"{measure}: CPU us per record", side, cpu_us)
