"""Rows about groups: how soon members share the work, what commits cost, what a restart reads."""

from __future__ import annotations

import time

from bench.group_driver import commit_error, commit_request, committed, until_accepted
from bench.readings import HEADRACE, OS, Readings
from bench.sides import Side, discard, in_turn
from bench.wire import RawConnection
from tests.support.brokers import HOST, BrokerProcess

MEMBERS, MANY_MEMBERS = 20, 200
# What the median of one protocol's joins is taken of, at the least: heartbeats decide much of it.
_JOINS_MIN = 5
_SHIPPED_DELAY = {"group.initial.rebalance.delay.ms": "3000"}
PROTOCOLS = {"classic": "classic", "KIP-848": "consumer"}
_COMMITS, _WARM_UP, _WINDOW = 5_000, 1_000, 100
_OFFSETS, _PARTITIONS = 100_000, 1_000


def measure_joining(sides: list[Side], pairs: int, readings: Readings) -> None:
    """Seconds until 20 members own a partition each."""
    taking_part = [side for side in sides if side.name != OS]
    _measure_joining(taking_part, PROTOCOLS, max(pairs, _JOINS_MIN), readings)
    delayed = [
        Side(side.name, side.fresh("delayed", _SHIPPED_DELAY), side.fresh) for side in taking_part
    ]
    try:
        for side in delayed:
            side.broker.start()
        after_delay = {"classic after 3 s": "classic"}
        _measure_joining(delayed, after_delay, max(pairs, _JOINS_MIN), readings)
    finally:
        for side in delayed:
            discard(side.broker)


def _measure_joining(
    sides: list[Side], protocols: dict[str, str], rounds: int, readings: Readings
) -> None:
    for side in sides:
        side.create_topic("joined", MEMBERS)
    for name, protocol in protocols.items():
        for number, order in in_turn(sides, rounds):
            for side in order:
                outcome = side.drive(
                    "join",
                    driver="bench.group_driver",
                    topic="joined",
                    group=f"{protocol}-{number}",
                    members=MEMBERS,
                    protocol=protocol,
                )
                readings.add(f"{MEMBERS} members, {name}: s", side.name, outcome.seconds)
    for side in sides:
        side.delete_topic("joined")


def measure_many_members(sides: list[Side], readings: Readings) -> None:
    """The same with 200 of them, and what it costs the broker."""
    for side in sides:
        if side.name != HEADRACE:
            continue
        side.create_topic("crowded", MANY_MEMBERS)
        outcome = side.drive(
            "join",
            driver="bench.group_driver",
            topic="crowded",
            group="crowd",
            members=MANY_MEMBERS,
            protocol="classic",
        )
        readings.add(f"{MANY_MEMBERS} members, classic: s", side.name, outcome.seconds)
        cpu = outcome.broker_cpu_seconds
        readings.add(f"{MANY_MEMBERS} members, classic: broker CPU s", side.name, cpu)
        side.delete_topic("crowded")


def measure_commits(sides: list[Side], pairs: int, readings: Readings) -> None:
    """Commits a second over one connection, one at a time and 100 at a time."""
    for side in sides:
        side.create_topic("committed")
    for name, window in (("one at a time", 1), (f"{_WINDOW} in flight", _WINDOW)):
        for pair, order in in_turn(sides, pairs):
            for side in order:
                outcome = side.drive(
                    "commit",
                    driver="bench.group_driver",
                    topic="committed",
                    group=f"commits-{window}-{pair}",
                    count=_COMMITS if window == 1 else 4 * _COMMITS,
                    window=window,
                    warm_up=_WARM_UP,
                )
                rate = outcome.count / outcome.seconds
                readings.add(f"offset commits, {name}: per s", side.name, rate)
    for side in sides:
        side.delete_topic("committed")


def measure_restart(side: Side, restarts: int, readings: Readings) -> None:
    """From starting a broker that has 100,000 committed offsets to the first of them read."""
    broker = side.fresh("offsets", {})
    broker.start()
    try:
        Side(side.name, broker, side.fresh).create_topic("many", _PARTITIONS)
        last = _fill(broker)
        for _ in range(restarts):
            broker.stop()
            started = time.monotonic()
            broker.launch()
            taken = _first_fetch(broker, last) - started
            readings.add(f"restart with {_OFFSETS:,} offsets: s", side.name, taken)
    finally:
        discard(broker)


def _fill(broker: BrokerProcess) -> str:
    """Commit for many groups; the last one's name."""
    connection = RawConnection(HOST, broker.port)
    group = ""
    for number in range(_OFFSETS // _PARTITIONS):
        group = f"group-{number}"
        until_accepted(connection, group, "many")
        frame = commit_request(group, "many", list(range(_PARTITIONS)), 7)
        if error := commit_error(connection.ask(frame), "many"):
            raise RuntimeError(f"offsets cannot be committed: error {error}")
    connection.close()
    return group


def _first_fetch(broker: BrokerProcess, group: str) -> float:
    while True:
        try:
            connection = RawConnection(HOST, broker.port)
        except OSError:
            time.sleep(0.001)
            continue
        try:
            while committed(connection, group, "many", _PARTITIONS - 1) != 7:
                time.sleep(0.001)
            return time.monotonic()
        finally:
            connection.close()
