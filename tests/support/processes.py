"""Processes started for a test: their ports, what they cost, and how they end."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Ports from 32768 on belong to outgoing connections: a restarting server could find its own taken.
LOWEST_PORT, HIGHEST_PORT = 10_000, 32_000

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessFailed(Exception):
    """A started process died or did not become ready; carries the end of what it said."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now, outside the kernel's range for outgoing connections."""
    draw = random.SystemRandom()
    for _ in range(200):
        port = draw.randrange(LOWEST_PORT, HIGHEST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise ProcessFailed(f"no free port on {host}")


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process tree in bytes; `total` counts mapped files too."""

    total: int
    anonymous: int


def process_tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    tree = [pid]
    for parent in tree:
        for task in _listed(Path(f"/proc/{parent}/task")):
            try:
                tree.extend(int(child) for child in (task / "children").read_text().split())
            except OSError:
                continue
    return tree


def cpu_seconds(pid: int) -> float:
    """User and system time spent so far by the process and its descendants."""
    return sum(_own_cpu_seconds(each) for each in process_tree(pid))


def memory(pid: int) -> Memory:
    """What the process and its descendants hold in memory now."""
    total = anonymous = 0
    for each in process_tree(pid):
        fields = _status(each)
        total += fields.get("VmRSS", 0)
        anonymous += fields.get("RssAnon", 0)
    return Memory(total, anonymous)


def _own_cpu_seconds(pid: int) -> float:
    """The process's own time to the nanosecond, and that of ended children to the tick."""
    try:
        # Linux names every process's CPU clock by its pid; /proc shows the same time, coarser.
        own = time.clock_gettime((~pid << 3) | 2)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The command name may hold spaces; the numbered fields start after its closing bracket.
    waited = stat.rpartition(")")[2].split()[13:15]
    return own + sum(int(ticks) for ticks in waited) / _TICKS_PER_SECOND


def _status(pid: int) -> dict[str, int]:
    """The memory lines of /proc/PID/status, in bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


class ServerProcess:
    """One server as a child process, its output kept in a file."""

    def __init__(self, name: str, command: list[str], log_path: Path) -> None:
        self.name = name
        self.command = command
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process's id; an error when it is not running."""
        if self._process is None:
            raise ProcessFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Start it; does not wait until it serves."""
        if self.running:
            raise ProcessFailed(f"{self.name} runs already")
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Return when `ready` says so; fail when the process ends or time runs out first."""
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if not self.running:
                raise ProcessFailed(f"{self.name} ended while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{self.name} not ready in {timeout_seconds} s:\n{self.log_tail()}"
                )
            time.sleep(0.002)

    def stop(self, timeout_seconds: float = 60) -> int:
        """Ask it to end (SIGTERM) and wait; killed when it does not. Returns its exit code."""
        return self._end(signal.SIGTERM, timeout_seconds)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL, 30)

    def signal(self, number: int) -> None:
        """Send one signal and do not wait."""
        os.kill(self.pid, number)

    def log_tail(self, lines: int = 30) -> str:
        """The last lines it wrote."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, number: int, timeout_seconds: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        self._process = None
        return process.returncode


def answers_api_versions(host: str, port: int, timeout_seconds: float = 2.0) -> bool:
    """Whether a Kafka broker answers the smallest possible request at this address."""
    request = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds) as connection:
            connection.sendall(request)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def accepts(host: str, port: int, timeout_seconds: float = 2.0) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout_seconds).close()
    except OSError:
        return False
    return True
