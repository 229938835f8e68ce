"""One broker as a process, Apache Kafka or Headrace, behind the same interface.

Tests and benchmarks take a `BrokerProcess` and need not know which of the two it is: a test that
fails against Headrace and passes against Apache Kafka has found a fault of ours.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.support.kafka_tools import QUICK_JVM, KafkaTools
from tests.support.processes import (
    Memory,
    ServerProcess,
    answers_api_versions,
    cpu_seconds,
    free_port,
    memory,
)
from tests.support.tools import tools_dir

HOST = "127.0.0.1"
EXTRA_LISTENERS_OFF = {"http.listener": "off", "text.listener": "off"}
KAFKA_START_SECONDS = 120
HEADRACE_START_SECONDS = 30


class BrokerProcess(ABC):
    """A single-node broker on loopback with its own data directory."""

    kind: ClassVar[str]

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.port = free_port(HOST)
        self.settings = dict(settings or {})
        data_dir.mkdir(parents=True, exist_ok=True)
        self._server = ServerProcess(
            self.kind, self._command(), data_dir.with_name(f"{data_dir.name}.out")
        )

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT as clients want it."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._server.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._server.running

    @property
    def log_path(self) -> Path:
        """The file that holds what the process wrote to its standard outputs."""
        return self._server.log_path

    @abstractmethod
    def _command(self) -> list[str]:
        """The command line that serves."""

    @abstractmethod
    def _start_seconds(self) -> float:
        """How long it may take until it answers."""

    def launch(self) -> None:
        """Start the process and return at once."""
        self._server.start(self._environment())

    def _environment(self) -> dict[str, str]:
        """Variables of its own."""
        return {}

    def wait_until_ready(self) -> None:
        """Wait until it answers a request."""
        self._server.wait_until(
            lambda: answers_api_versions(HOST, self.port), self._start_seconds()
        )

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self.launch()
        self.wait_until_ready()

    def stop(self) -> int:
        """Stop it in order (SIGTERM); its exit code."""
        return self._server.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._server.kill()

    def restart(self) -> None:
        """Stop in order, then start on the same data and port."""
        self.stop()
        self.start()

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._server.signal(number)

    def cpu_seconds(self) -> float:
        """CPU time used so far, child processes included."""
        return cpu_seconds(self.pid)

    def memory(self) -> Memory:
        """Resident memory now, child processes included."""
        return memory(self.pid)

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """Where the log of one partition lies; both brokers use the same layout."""
        return self.data_dir / f"{topic}-{partition}"


class ApacheKafka(BrokerProcess):
    """Apache Kafka 4.3, one KRaft node that is broker and controller."""

    kind = "Apache Kafka"

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        *,
        tools: KafkaTools | None = None,
        jvm: Sequence[str] = ("-Xmx512M", *QUICK_JVM[1:]),
    ) -> None:
        self._tools = tools or KafkaTools()
        self._jvm = tuple(jvm)
        self._controller_port = free_port(HOST)
        self._properties = data_dir.with_name(f"{data_dir.name}.properties")
        super().__init__(data_dir, settings)
        if not (data_dir / "meta.properties").exists():
            self._format()

    def properties(self) -> dict[str, str]:
        """The configuration the broker runs with."""
        plaintext = f"PLAINTEXT://{self.bootstrap_servers}"
        return {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@{HOST}:{self._controller_port}",
            "listeners": f"{plaintext},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": plaintext,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }

    def _format(self) -> None:
        lines = [f"{name}={value}\n" for name, value in self.properties().items()]
        self._properties.write_text("".join(lines))
        storage = "kafka.tools.StorageTool"
        made = self._tools.run(storage, "random-uuid").checked().split()[-1]
        self._tools.run(storage, "format", "-t", made, "-c", str(self._properties)).checked()

    def _command(self) -> list[str]:
        return self._tools.command("kafka.Kafka", str(self._properties), jvm=self._jvm)

    def _start_seconds(self) -> float:
        return KAFKA_START_SECONDS


class HeadraceProcess(BrokerProcess):
    """`headrace serve` in a process of its own, from this interpreter's installation."""

    kind = "Headrace"

    def _command(self) -> list[str]:
        # Their ports are fixed, and brokers of tests are many: a test that wants one names it.
        wanted = {**EXTRA_LISTENERS_OFF, **self.settings}
        settings = (f"{name}={value}" for name, value in wanted.items())
        return [
            sys.executable,
            "-m",
            "headrace",
            "serve",
            "--data-dir",
            str(self.data_dir),
            "--listen",
            self.bootstrap_servers,
            *(word for setting in settings for word in ("--set", setting)),
        ]

    def _environment(self) -> dict[str, str]:
        # Compiled once, as an installation is, also where tests leave no bytecode behind.
        cache = tools_dir() / "bytecode"
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache)}

    def _start_seconds(self) -> float:
        return HEADRACE_START_SECONDS
