"""Two consumers share a topic as a group; one is killed, the other takes over its part."""

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from rich.console import Console

from scripts.demo.stream import progress_bar

GROUP = "demo-workers"
PATIENCE_SECONDS = 60

Line = tuple[str, int, int, int]
"""Name of the member, partition, first and last offset of what it has worked through."""


@dataclass(slots=True)
class Shared:
    """Who did what."""

    by_member: dict[str, int] = field(default_factory=dict)
    done: dict[int, set[int]] = field(default_factory=dict)
    repeated: int = 0
    takeover_seconds: float = 0.0
    partitions_of: dict[str, set[int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Different records that were worked through."""
        return sum(len(offsets) for offsets in self.done.values())

    def missing(self, ends: dict[int, int]) -> int:
        """Records that nobody has seen."""
        return sum(end - len(self.done.get(partition, ())) for partition, end in ends.items())

    def note(self, line: Line) -> None:
        name, partition, first, last = line
        offsets = self.done.setdefault(partition, set())
        before = len(offsets)
        offsets.update(range(first, last + 1))
        self.repeated += last + 1 - first - (len(offsets) - before)
        self.by_member[name] = self.by_member.get(name, 0) + last + 1 - first
        self.partitions_of.setdefault(name, set()).add(partition)


def share(address: str, topic: str, ends: dict[int, int], *, console: Console) -> Shared:
    """Let two members work, kill one once both are at it, and wait until everything is done."""
    outcome, total, killed_at = Shared(), sum(ends.values()), 0.0
    lines: queue.Queue[Line] = queue.Queue()
    with (
        _member(address, topic, "ann", lines) as ann,
        _member(address, topic, "bob", lines),
        progress_bar(console) as progress,
    ):
        task = progress.add_task("sharing", total=total)
        deadline = time.perf_counter() + PATIENCE_SECONDS
        orphans: set[int] = set()
        while outcome.count < total and time.perf_counter() < deadline:
            try:
                line = lines.get(timeout=0.2)
            except queue.Empty:
                continue
            outcome.note(line)
            progress.update(task, completed=outcome.count)
            if not killed_at and len(outcome.by_member) == 2 and outcome.count > total // 5:
                ann.send_signal(signal.SIGKILL)
                killed_at = time.perf_counter()
                orphans = outcome.partitions_of["ann"] - outcome.partitions_of["bob"]
                console.print("[bold red]SIGKILL[/] of ann; bob has to find out and take over")
            elif killed_at and line[0] == "bob" and line[1] in orphans:
                outcome.takeover_seconds = outcome.takeover_seconds or (
                    time.perf_counter() - killed_at
                )
    return outcome


@contextmanager
def _member(
    address: str, topic: str, name: str, lines: "queue.Queue[Line]"
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "scripts.demo.member", address, topic, GROUP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_listen, args=(name, process.stdout, lines))
        reader.start()
        try:
            yield process
        finally:
            process.terminate()
            reader.join()


def _listen(name: str, said: IO[str], lines: "queue.Queue[Line]") -> None:
    for line in said:
        numbers = line.split()
        if len(numbers) == 3:  # less if it was killed in the middle of a line
            partition, first, last = map(int, numbers)
            lines.put((name, partition, first, last))
