"""The rows of the comparison, each with its bar, and how a run is judged by them.

What is judged is Headrace as it comes. `log.flush.policy=os` stands beside it, for those who want
Kafka's own durability, and has no bars.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.latency import UNREAD
from bench.machine import Machine
from bench.readings import HEADRACE, KAFKA, OS, Readings, Spread, spread
from bench.throughput import FETCHES, SIZES, size_name

CLIENT_BOUND_SHARE = 0.9
_RATE_BARS = {(100, "1"): 1.0, (100, "all"): 1.0, (1024, "1"): 1.2, (1024, "all"): 1.0}
_CPU_BAR = 2.0
# What a neighbour of a client that is a burden may notice.
_NOTICED_MS = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a measure, what it is compared with, and the bar.

    `ratio` rows divide Headrace by Kafka; others take Headrace's own value. A row without a bar
    is told and not judged. `client_bound_by` names the measure that excuses a rate: there the
    client, not the broker, was the limit.
    """

    title: str
    measure: str
    bar: float | None
    at_least: bool
    ratio: bool
    client_bound_by: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says about one row."""

    row: Row
    value: Spread | None
    ours: Spread | None
    with_os: Spread | None
    theirs: Spread | None
    met: bool | None
    note: str = ""


def rows(machine: Machine, readings: Readings) -> Iterator[Row]:
    """Every row, in the order of the report; some bars follow what else was measured."""
    yield from _produce_rows()
    yield from _consume_rows()
    yield from _latency_rows(machine)
    yield from _end_to_end_rows(machine, readings)
    yield from _absolute_rows()
    yield from _group_rows()
    yield from _http_and_text_rows()


def _produce_rows() -> Iterator[Row]:
    for size in SIZES:
        name = size_name(size)
        for acks in ("1", "all"):
            measure = f"produce {name} acks={acks}"
            share = f"{measure}: client CPU share"
            bar = _RATE_BARS[size, acks]
            yield _at_least(f"{measure}, rate", f"{measure}: MB/s", bar, client_bound_by=share)
            cpu = f"{measure}: MB per CPU second"
            yield _at_least(f"{measure}, MB per broker CPU second", cpu, _CPU_BAR)


def _consume_rows() -> Iterator[Row]:
    for size in SIZES:
        for fetches in FETCHES:
            measure = f"consume {size_name(size)}, {fetches}"
            share = f"{measure}: client CPU share"
            yield _at_least(f"{measure}, rate", f"{measure}: MB/s", 1.0, client_bound_by=share)
            cpu = f"{measure}: MB per CPU second"
            yield _at_least(f"{measure}, MB per broker CPU second", cpu, 1.0)


def _latency_rows(machine: Machine) -> Iterator[Row]:
    for client in ("client", "bare socket"):
        measure = f"one produce acks=1, {client}"
        # The client's own time is the larger part of the first.
        bar = 0.5 if client == "bare socket" else 1.0
        yield _at_most(f"{measure}, p50", f"{measure}: p50 ms", bar)
        yield _at_most(f"{measure}, p99", f"{measure}: p99 ms", bar)
        cpu = f"{measure}: CPU us per request"
        yield _at_most(f"{measure}, broker CPU per request", cpu, 0.5)
    for client in ("client", "bare socket"):
        measure = f"one produce acks=all, {client}"
        limit = 2 * machine.fdatasync_p50_ms + 0.2
        yield _at_most(f"{measure}, p50 ms", f"{measure}: p50 ms", limit, ratio=False)


def _end_to_end_rows(machine: Machine, readings: Readings) -> Iterator[Row]:
    slow = {acks: f"end to end 1,000/s acks={acks}" for acks in ("1", "all")}
    in_page_cache = spread(readings.of(f"{slow['all']}: p50 ms", OS))
    flushed = in_page_cache.median + 1.5 * machine.fdatasync_p50_ms if in_page_cache else None
    yield _at_most(f"{slow['all']}, p50 ms", f"{slow['all']}: p50 ms", flushed, ratio=False)
    yield _at_most(f"{slow['all']}, p99", f"{slow['all']}: p99 ms", 0.6)
    for percent in ("p50", "p99"):
        of_all = spread(readings.of(f"{slow['all']}: {percent} ms", HEADRACE))
        title, measure = f"{slow['1']}, {percent} ms", f"{slow['1']}: {percent} ms"
        yield _at_most(title, measure, of_all.median if of_all else None, ratio=False)
    for measure in (slow["1"], UNREAD):
        title = f"{measure}, broker CPU us per record"
        yield _at_most(title, f"{measure}: CPU us per record", None)
    for acks in ("1", "all"):
        fast = f"end to end 10,000/s acks={acks}"
        yield _at_most(f"{fast}, p99 ms", f"{fast}: p99 ms", 20, ratio=False)
        delivered = f"{fast}: delivered share"
        yield _at_least(f"{fast}, delivered share", delivered, 1.0, ratio=False)
        yield _at_most(f"{fast}, growth of latency ms", f"{fast}: growth ms", 5, ratio=False)


def _absolute_rows() -> Iterator[Row]:
    yield _at_most(
        "60 readers that read nothing: memory MB",
        "60 readers that read nothing: memory MB",
        100,
        ratio=False,
    )
    for noticed in (
        "60 readers that read nothing: slowest produce ms",
        "delete 10,000 partitions: longest wait of others ms",
        "one durable produce beside a flush of 1,000 partitions: slowest ms",
    ):
        yield _at_most(noticed, noticed, _NOTICED_MS, ratio=False)
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
    yield _at_most("20 members stable, classic", "20 members, classic: s", 1.2)
    after_delay = "20 members, classic after 3 s: s"
    yield _at_most("20 members stable, classic, delay of 3 s", after_delay, 1.0)
    yield _at_most("20 members stable, KIP-848", "20 members, KIP-848: s", 0.3)
    for measure, bar in (
        ("200 members, classic: s", 15),
        ("200 members, classic: broker CPU s", 5),
        ("restart with 100,000 offsets: s", 2),
    ):
        yield _at_most(measure, measure, bar, ratio=False)
    # One at a time, each waits for its own flush; Kafka's wait for none.
    commits = "offset commits, one at a time"
    yield _at_least(f"{commits}, rate", f"{commits}: per s", None)
    commits = "offset commits, 100 in flight"
    yield _at_least(f"{commits}, rate", f"{commits}: per s", 1.0)


def _http_and_text_rows() -> Iterator[Row]:
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
        measure = f"one produce beside HTTP and text, {name}: p99 ms"
        yield _at_most(measure, measure, bar, ratio=False)


def _at_least(
    title: str, measure: str, bar: float | None, *, ratio: bool = True, client_bound_by: str = ""
) -> Row:
    return Row(title, measure, bar, True, ratio, client_bound_by)


def _at_most(title: str, measure: str, bar: float | None, *, ratio: bool = True) -> Row:
    return Row(title, measure, bar, False, ratio)


def judge(row: Row, readings: Readings) -> Verdict:
    """Compare the median with the bar; None where something was not measured."""
    ours = spread(readings.of(row.measure, HEADRACE))
    with_os = spread(readings.of(row.measure, OS))
    theirs = spread(readings.of(row.measure, KAFKA))
    value = spread(readings.ratios(row.measure, HEADRACE)) if row.ratio else ours
    if value is None:
        return Verdict(row, value, ours, with_os, theirs, None, "not measured")
    if row.bar is None:
        return Verdict(row, value, ours, with_os, theirs, None, "told, not judged")
    met = value.median >= row.bar if row.at_least else value.median <= row.bar
    note = ""
    share = spread(readings.of(row.client_bound_by, HEADRACE)) if row.client_bound_by else None
    if share is not None and share.median > CLIENT_BOUND_SHARE:
        note = f"client at {share.median:.0%} of a core: the CPU row decides"
        met = True
    return Verdict(row, value, ours, with_os, theirs, met, note)
