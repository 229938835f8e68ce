"""The sides of the comparison: a format, and the broker that it reads from and writes to."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.spark.rows import OFFICIAL, OFFICIAL_KAFKA, OURS
from tests.support.brokers import ApacheKafka, BrokerProcess, HeadraceProcess
from tests.support.tools import ToolOutOfReach

OUR_FORMAT = "headrace"
_OFFICIAL_FORMAT = "kafka"
# Kafka's own durability on both: acknowledged is what the operating system has.
HEADRACE_SETTINGS = {"log.flush.policy": "os", "log.segment.delete.delay.ms": "1000"}
KAFKA_SETTINGS = {"log.segment.delete.delay.ms": "1000"}
KAFKA_JVM = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC")


@dataclass(frozen=True, slots=True)
class Side:
    """A format and the broker behind it."""

    name: str
    format: str
    broker: BrokerProcess

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def is_ours(self) -> bool:
        return self.format == OUR_FORMAT


def start_sides(stack: ExitStack, directory: Path, *, official: bool) -> list[Side]:
    """Brokers that stop when the stack unwinds; without what is not to be had, and a word."""
    headrace = HeadraceProcess(directory / "headrace", HEADRACE_SETTINGS)
    stack.callback(_stop, headrace)
    headrace.start()
    sides = [Side(OURS, OUR_FORMAT, headrace)]
    if not official:
        return sides
    sides.append(Side(OFFICIAL, _OFFICIAL_FORMAT, headrace))
    try:
        apache = ApacheKafka(directory / "kafka", KAFKA_SETTINGS, jvm=KAFKA_JVM)
    except ToolOutOfReach as error:
        print(f"without Apache Kafka: {error}", file=sys.stderr)
        return sides
    stack.callback(_stop, apache)
    apache.start()
    return [*sides, Side(OFFICIAL_KAFKA, _OFFICIAL_FORMAT, apache)]


def _stop(broker: BrokerProcess) -> None:
    if broker.running:
        broker.stop()


def brokers_of(sides: Sequence[Side]) -> list[str]:
    """The servers of all sides, each once."""
    return list(dict.fromkeys(side.servers for side in sides))


def in_turn(
    sides: Sequence[Side], warm_rounds: int, rounds: int
) -> Iterator[tuple[bool, list[Side]]]:
    """Whether a round counts, and its order, which turns: no side is always behind the same one."""
    for number in range(warm_rounds + rounds):
        yield number >= warm_rounds, list(sides if number % 2 == 0 else sides[::-1])
