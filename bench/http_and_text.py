"""Rows about HTTP and text: their rates on one core, and what they cost a Kafka client.

"On one core" is taken at its word: events by second of the broker's CPU. Measures are named
`HTTP produce, batches: events per CPU second` and `…: events/s`.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from bench.driver import Outcome
from bench.percentiles import percentile
from bench.readings import HEADRACE, Readings
from bench.sides import Side, discard, report_of
from tests.support.brokers import HOST
from tests.support.processes import free_port

_SECONDS = 4.0
_CONNECTIONS = 4
_SHARE = 0.25
_REQUESTS = 2_000
_TOPIC, _SMALL_TOPIC = "extra", "small"
_DRIVER = "bench.http_and_text_driver"


def measure_http_and_text(sides: list[Side], rounds: int, readings: Readings) -> None:
    """Each listener by itself, then all of them at once. Kafka has none of these."""
    if not any(side.name == HEADRACE for side in sides):
        return
    own = next(side for side in sides if side.name == HEADRACE)
    http, text = free_port(HOST), free_port(HOST)
    addresses = {"http.listener": f"{HOST}:{http}", "text.listener": f"{HOST}:{text}"}
    broker = own.fresh("extra", addresses)
    broker.start()
    side = Side(HEADRACE, broker, own.fresh)
    try:
        side.create_topic(_TOPIC)
        side.create_topic(_SMALL_TOPIC)
        _wait_for_listeners(http, text)
        for _ in range(rounds):
            _measure_each(side, http, text, readings)
            _measure_together(side, http, text, readings)
    finally:
        discard(broker)


def _wait_for_listeners(*ports: int) -> None:
    deadline = time.monotonic() + 30
    for port in ports:
        while True:
            try:
                socket.create_connection((HOST, port), timeout=5).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def _measure_each(side: Side, http: int, text: int, readings: Readings) -> None:
    common = {"topic": _TOPIC, "seconds": _SECONDS, "connections": _CONNECTIONS}
    for name, workload, more in (
        ("HTTP produce, batches of 100 x 100 B", "http_produce", {"port": http, "batch": 100}),
        ("HTTP produce, single records", "http_produce", {"port": http, "batch": 1}),
        ("HTTP read", "http_read", {"port": http}),
        ("text PUBLISH", "text_publish", {"port": text}),
        ("text CONSUME", "text_consume", {"port": text}),
    ):
        outcome = side.drive(workload, driver=_DRIVER, **common, **more)
        per_cpu = outcome.count / max(outcome.broker_cpu_seconds, 1e-9)
        readings.add(f"{name}: events per CPU second", side.name, per_cpu)
        readings.add(f"{name}: events/s", side.name, outcome.count / outcome.seconds)


def _measure_together(side: Side, http: int, text: int, readings: Readings) -> None:
    """One small produce on the Kafka listener while the others are busy."""

    def last(name: str) -> float:
        return readings.of(f"{name}: events per CPU second", side.name)[-1]

    http_rate = _SHARE * last("HTTP produce, batches of 100 x 100 B")
    text_rate = _SHARE * last("text PUBLISH")
    for name, rates in (("25 % each", (http_rate, text_rate)), ("saturated", (0.0, 0.0))):
        taken, cpu = _produce_under_load(side, (http, text), rates)
        measure = f"one produce beside HTTP and text, {name}"
        readings.add(f"{measure}: p50 ms", side.name, percentile(taken.latencies_ms, 50))
        readings.add(f"{measure}: p99 ms", side.name, percentile(taken.latencies_ms, 99))
        readings.add(f"{measure}: slowest ms", side.name, max(taken.latencies_ms))
        readings.add(f"{measure}: broker CPU share", side.name, cpu)


def _produce_under_load(
    side: Side, ports: tuple[int, int], rates: tuple[float, float]
) -> tuple[Outcome, float]:
    http, text = ports
    seconds = 3 * _SECONDS
    load: dict[str, Any] = {"topic": _TOPIC, "seconds": seconds, "connections": _CONNECTIONS}
    by_http = {**load, "port": http, "batch": 100, "rate": rates[0]}
    by_text = {**load, "port": text, "rate": rates[1]}
    with (
        side.driver("http_produce", driver=_DRIVER, **by_http) as over_http,
        side.driver("text_publish", driver=_DRIVER, **by_text) as over_text,
    ):
        time.sleep(1.5)  # until both are at it
        taken = side.drive(
            "produce_paced", driver=_DRIVER, topic=_SMALL_TOPIC, count=_REQUESTS, rate=250
        )
        report_of(over_http)
        report_of(over_text)
    return taken, taken.broker_cpu_seconds / taken.seconds
