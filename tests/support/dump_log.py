"""Kafka's dump tool as an independent reader of log directories.

The tool exits 0 whatever it finds, so its words are searched, and what it cannot see (base
offsets lie outside the checksum) is checked here: offsets must grow from batch to batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kafka_tools import DUMP_LOG, KafkaTools, ToolResult

COMPLAINTS = (
    "isvalid: false",
    "invalid bytes at the end",
    "Mismatches in",
    "Exception",
    "Could not",
    "Unexpected",
    "Unknown",
    "UNKNOWN",
    "non-consecutive",
    "Skipped",
    "out of order",
)
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", re.MULTILINE)
_RECORD = re.compile(r"^\| offset: (\d+)", re.MULTILINE)
_CODEC = re.compile(r"compresscodec: (\w+)")


@dataclass(slots=True)
class DumpedLog:
    """What the tool read from the segments of one directory."""

    directory: Path
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    codecs: set[str] = field(default_factory=set)
    segments: int = 0
    complaints: list[str] = field(default_factory=list)
    text: str = ""

    def assert_sound(self) -> None:
        """No complaint, offsets growing, counts that agree, and something there at all."""
        assert not self.complaints, f"{self.directory}: {self.complaints}"
        assert self.batches, f"{self.directory}: nothing was read"
        before = -1
        for base, last, _ in self.batches:
            assert before < base <= last, f"{self.directory}: {base} to {last} after {before}"
            before = last
        assert self.offsets == sorted(set(self.offsets))
        assert len(self.offsets) == sum(count for _, _, count in self.batches)


def dump(
    tools: KafkaTools, directories: Sequence[Path], decoder: str = "--print-data-log"
) -> dict[Path, DumpedLog]:
    """Read every segment, check every index, of several partition directories in one JVM."""
    plan: list[tuple[Path, list[str]]] = []
    for directory in directories:
        logs = sorted(directory.glob("*.log"))
        indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
        snapshots = sorted(directory.glob("*.checkpoint"))
        assert logs, f"{directory} holds no segment"
        files = ",".join(map(str, [*logs, *snapshots]))
        plan.append((directory, [DUMP_LOG, "--deep-iteration", decoder, "--files", files]))
        if indexes:
            found = ",".join(map(str, indexes))
            plan.append((directory, [DUMP_LOG, "--verify-index-only", "--files", found]))
    results = tools.run_batch([command for _, command in plan], timeout_seconds=600)
    dumped = {directory: DumpedLog(directory) for directory in directories}
    for (directory, _), result in zip(plan, results, strict=True):
        _add(dumped[directory], result)
    for directory, log in dumped.items():
        log.segments = len(list(directory.glob("*.log")))
    return dumped


def _add(log: DumpedLog, result: ToolResult) -> None:
    said = result.output + result.error
    lines = (line.strip() for line in said.splitlines())
    log.complaints.extend(line[:300] for line in lines if any(word in line for word in COMPLAINTS))
    if result.exit_code != 0:
        log.complaints.append(f"exit {result.exit_code}: {result.error[-300:]}")
    # Payloads may hold anything; only the tool's own line starts are read.
    log.batches.extend(
        (int(base), int(last), int(count)) for base, last, count in _BATCH.findall(result.output)
    )
    log.offsets.extend(int(offset) for offset in _RECORD.findall(result.output))
    log.codecs.update(_CODEC.findall(result.output))
    log.text += result.output
