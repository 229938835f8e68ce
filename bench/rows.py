"""The rows of the comparison, each with its bar, and how a run is judged by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.machine import Machine
from bench.readings import DURABLE, HEADRACE, KAFKA, Readings, Spread, spread
from bench.throughput import SIZES, size_name

CLIENT_BOUND_SHARE = 0.9
_CPU_BARS = {100: 2.0, 1024: 1.5}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a measure, what it is compared with, and the bar.

    `ratio` rows divide Headrace by Kafka; others take Headrace's own value. `client_bound_by`
    names the measure that excuses a rate: there the client, not the broker, was the limit.
    """

    title: str
    measure: str
    bar: float
    at_least: bool
    ratio: bool
    side: str = HEADRACE
    client_bound_by: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says about one row."""

    row: Row
    value: Spread | None
    ours: Spread | None
    theirs: Spread | None
    met: bool | None
    note: str = ""


def rows(machine: Machine) -> Iterator[Row]:
    """Every row, in the order of the report."""
    yield from _produce_rows()
    yield from _consume_rows()
    yield from _latency_rows(machine)
    yield from _absolute_rows()
    yield from _group_rows()
    yield from _door_rows()


def _produce_rows() -> Iterator[Row]:
    for size in SIZES:
        name = size_name(size)
        for acks in ("1", "all"):
            measure = f"produce {name} acks={acks}"
            share = f"{measure}: client CPU share"
            yield _at_least(f"{measure}, rate", f"{measure}: MB/s", 0.95, client_bound_by=share)
            cpu = f"{measure}: MB per CPU second"
            yield _at_least(f"{measure}, MB per broker CPU second", cpu, _CPU_BARS[size])
        durable = f"produce {name} acks=all: MB/s"
        yield _at_least(f"produce {name} acks=all, rate, durable", durable, 0.8, side=DURABLE)


def _consume_rows() -> Iterator[Row]:
    for size in SIZES:
        measure = f"consume {size_name(size)}"
        share = f"{measure}: client CPU share"
        yield _at_least(f"{measure}, rate", f"{measure}: MB/s", 0.95, client_bound_by=share)
        cpu = f"{measure}: MB per CPU second"
        yield _at_least(f"{measure}, MB per broker CPU second", cpu, 1.0)


def _latency_rows(machine: Machine) -> Iterator[Row]:
    for acks in ("1", "all"):
        for client in ("client", "bare socket"):
            measure = f"one produce acks={acks}, {client}"
            yield _at_most(f"{measure}, p50", f"{measure}: p50 ms", 0.6)
            yield _at_most(f"{measure}, p99", f"{measure}: p99 ms", 0.8)
            cpu = f"{measure}: CPU us per request"
            yield _at_most(f"{measure}, broker CPU per request", cpu, 0.35)
    limit = 2 * machine.fdatasync_p50_ms + 0.2
    for client in ("client", "bare socket"):
        measure = f"one produce acks=all, {client}: p50 ms"
        title = f"one produce, {client}, durable, p50 ms"
        yield _at_most(title, measure, limit, ratio=False, side=DURABLE)
    for acks in ("1", "all"):
        slow, fast = f"end to end 1,000/s acks={acks}", f"end to end 10,000/s acks={acks}"
        yield _at_most(f"{slow}, p99", f"{slow}: p99 ms", 0.5)
        yield _at_most(f"{fast}, p99 ms", f"{fast}: p99 ms", 20, ratio=False)
        delivered = f"{fast}: delivered share"
        yield _at_least(f"{fast}, delivered share", delivered, 1.0, ratio=False)
        yield _at_most(f"{fast}, growth of latency ms", f"{fast}: growth ms", 5, ratio=False)


def _absolute_rows() -> Iterator[Row]:
    yield _at_most("start to first ack", "start to first ack: s", 0.1)
    for measure, bar in (
        ("start to first ack: s", 0.6),
        ("compaction, one produce: p99 ms", 5),
        ("compaction, compactor's memory: MB", 128),
        ("memory idle: MB", 70),
        ("memory after 1 GB: MB", 200),
        ("1,000 partitions, create: s", 0.5),
        ("1,000 partitions, idle CPU: %", 1),
        ("1,000 partitions, memory each: KB", 15),
        ("clean restart: s", 0.6),
        ("crash restart: s", 2),
        ("testing.Broker start + stop: ms", 30),
    ):
        yield _at_most(measure, measure, bar, ratio=False)


def _group_rows() -> Iterator[Row]:
    yield _at_most("20 members stable, classic", "20 members, classic: s", 1.0)
    yield _at_most("20 members stable, KIP-848", "20 members, KIP-848: s", 0.3)
    for measure, bar in (
        ("200 members, classic: s", 15),
        ("200 members, classic: broker CPU s", 5),
        ("restart with 100,000 offsets: s", 2),
    ):
        yield _at_most(measure, measure, bar, ratio=False)
    commits = "offset commits, one at a time"
    yield _at_least(f"{commits}, rate", f"{commits}: per s", 1.0)
    commits = "offset commits, 100 in flight"
    yield _at_least(f"{commits}, rate, durable", f"{commits}: per s", 1.0, side=DURABLE)


def _door_rows() -> Iterator[Row]:
    for name, bar in (
        ("HTTP produce, batches of 100 x 100 B", 100_000),
        ("HTTP produce, single records", 2_000),
        ("HTTP read", 100_000),
        ("text PUBLISH", 30_000),
        ("text CONSUME", 100_000),
    ):
        measure = f"{name}: events per CPU second"
        yield _at_least(f"{name}, events/s on one core", measure, bar, ratio=False)
    for name, bar in (("25 % each", 5), ("saturated", 50)):
        measure = f"one produce beside the doors, {name}: p99 ms"
        yield _at_most(measure, measure, bar, ratio=False)


def _at_least(
    title: str,
    measure: str,
    bar: float,
    *,
    ratio: bool = True,
    side: str = HEADRACE,
    client_bound_by: str = "",
) -> Row:
    return Row(title, measure, bar, True, ratio, side, client_bound_by)


def _at_most(
    title: str, measure: str, bar: float, *, ratio: bool = True, side: str = HEADRACE
) -> Row:
    return Row(title, measure, bar, False, ratio, side)


def judge(row: Row, readings: Readings) -> Verdict:
    """Compare the median with the bar; None where something was not measured."""
    ours = spread(readings.of(row.measure, row.side))
    theirs = spread(readings.of(row.measure, KAFKA))
    value = spread(readings.ratios(row.measure, row.side)) if row.ratio else ours
    if value is None:
        return Verdict(row, value, ours, theirs, None, "not measured")
    met = value.median >= row.bar if row.at_least else value.median <= row.bar
    note = ""
    share = spread(readings.of(row.client_bound_by, row.side)) if row.client_bound_by else None
    if share is not None and share.median > CLIENT_BOUND_SHARE:
        note = f"client at {share.median:.0%} of a core: the CPU row decides"
        met = True
    return Verdict(row, value, ours, theirs, met, note)
