"""The brokers under comparison, and the client processes that drive them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.driver import Outcome
from bench.readings import HEADRACE, KAFKA, OS
from tests.support.brokers import HOST, ApacheKafka, BrokerProcess, HeadraceProcess
from tests.support.processes import free_port

KAFKA_JVM = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC")
# Both sides keep the log of a measurement in one segment, drop deleted topics quickly, and let a
# group begin without waiting for more members, as the settings that Kafka is shipped with do.
COMMON = {"log.segment.delete.delay.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
HEADRACE_SETTINGS: dict[str, dict[str, str]] = {
    HEADRACE: {**COMMON},
    OS: {**COMMON, "log.flush.policy": "os"},
}
_RUN_SECONDS = 600


@dataclass(slots=True)
class Side:
    """One broker with a name in the readings; `fresh` makes another on an empty directory."""

    name: str
    broker: BrokerProcess
    fresh: Callable[[str, Mapping[str, str]], BrokerProcess]
    _admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """An admin client for this broker, made on first use."""
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0}
            )
        return self._admin

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until each of its partitions has a leader."""
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        self.admin.create_topics([new])[topic].result(60)
        deadline = time.monotonic() + 60
        while not self._is_led(topic, partitions):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} has no leaders")
            time.sleep(0.001)

    def _is_led(self, topic: str, partitions: int) -> bool:
        found = self.admin.list_topics(topic, timeout=60).topics[topic]
        led = [each for each in found.partitions.values() if each.leader >= 0]
        return found.error is None and len(led) == partitions

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, so that the disk does not fill up from run to run."""
        self.admin.delete_topics([topic])[topic].result(60)

    def drive(self, workload: str, driver: str = "bench.driver", **parameters: Any) -> Outcome:
        """Run one workload in a client process and wait for its report."""
        with self.driver(workload, driver, **parameters) as process:
            return report_of(process)

    def driver(
        self, workload: str, driver: str = "bench.driver", **parameters: Any
    ) -> subprocess.Popen[str]:
        """Start a client process of that module; its last line of output is the report."""
        common = {"bootstrap": self.broker.bootstrap_servers, "pid": self.broker.pid}
        arguments = json.dumps({**common, **parameters})
        return subprocess.Popen(
            [sys.executable, "-m", driver, workload, arguments],
            stdout=subprocess.PIPE,
            text=True,
        )


def report_of(process: subprocess.Popen[str]) -> Outcome:
    """Wait for a client process and read what it found."""
    said, _ = process.communicate(timeout=_RUN_SECONDS)
    if process.returncode != 0:
        raise RuntimeError(f"the client process failed (exit {process.returncode})")
    return Outcome(**json.loads(said.splitlines()[-1]))


def make_side(name: str, directory: Path) -> Side:
    """A side that is ready to start. Raises ToolOutOfReach when Kafka cannot be had."""

    def fresh(label: str, settings: Mapping[str, str]) -> BrokerProcess:
        data_dir = directory / f"{name}-{label}"
        shutil.rmtree(data_dir, ignore_errors=True)
        if name == KAFKA:
            return ApacheKafka(data_dir, {**COMMON, **settings}, jvm=KAFKA_JVM)
        return HeadraceProcess(
            data_dir, {**HEADRACE_SETTINGS[name], **listener_settings(), **settings}
        )

    return Side(name, fresh("main", {}), fresh)


def listener_settings() -> dict[str, str]:
    """The HTTP and text listeners on free ports: a broker is measured as people run it."""
    return {f"{name}.listener": f"{HOST}:{free_port(HOST)}" for name in ("http", "text")}


def in_turn(sides: list[Side], pairs: int) -> list[tuple[int, list[Side]]]:
    """The order of the runs: turned round from pair to pair (A/B, B/A, …).

    The second of a pair pays for the write-back of the first; each side is second equally often.
    """
    return [(pair, sides if pair % 2 == 0 else sides[::-1]) for pair in range(pairs)]


def discard(broker: BrokerProcess) -> None:
    """Stop a broker made for one measurement and give its disk space back."""
    if broker.running:
        broker.kill()
    shutil.rmtree(broker.data_dir, ignore_errors=True)
