"""What members of a group, and somebody who watches it, did and saw: judged by `group_checks`.

Members are processes of their own, so every event carries the system's monotonic clock instead
of a number; an operation has a beginning and an end, and only what ended before another one
began is known to come before it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Tenure:
    """A member's time with one partition: from being told so until it had given it up.

    `how` it ended: "revoked" in order, "lost" when the member learnt that it had been put out,
    "ended" by its death or by the end of the run.
    """

    member: str
    partition: Partition
    began: int
    ended: int
    how: str
    offsets: tuple[int, ...]  # what it was handed by polls, in order


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of one partition; only `ok` is certain, an error may hide a success."""

    member: str
    partition: Partition
    began: int
    ended: int
    offset: int
    ok: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """A committed offset as a bystander was told it; -1 for none."""

    partition: Partition
    began: int
    ended: int
    offset: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """One partition's offsets as ListOffsets told them, and one lookup by time."""

    partition: Partition
    earliest: int
    last_stable: int
    high_watermark: int
    asked_timestamp: int
    found: int


@dataclass(frozen=True, slots=True)
class Final:
    """After healing: each record's timestamp, who owned what, and how long settling took."""

    timestamps: Mapping[Partition, Sequence[int]]  # by offset
    owners: Mapping[Partition, str]
    settled_seconds: float
    bound_seconds: float


@dataclass(slots=True)
class GroupHistory:
    """Filled while a run goes on; judged when it is over. Resets are made by nobody."""

    tenures: list[Tenure] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    bounds: list[Bounds] = field(default_factory=list)
    final: Final | None = None

    def figures(self) -> str:
        read = sum(len(each.offsets) for each in self.tenures)
        ok = sum(each.ok for each in self.commits)
        return (
            f"{len(self.tenures)} tenures, {read} records read, {ok} of {len(self.commits)} "
            f"commits known to be done, {len(self.observed)} looks"
        )


class MemberLog:
    """The events of one member, as JSON lines in a file; safe to read after a SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def write(self, kind: str, **said: object) -> None:
        line = json.dumps({"kind": kind, "at": now(), **said}) + "\n"
        with self._lock:
            self._file.write(line.encode())


def now() -> int:
    """Comparable between processes of one machine."""
    return time.monotonic_ns()


def read_member_log(member: str, path: Path, ended: int, history: GroupHistory) -> None:
    """Add what a member wrote; `ended` is when it was known to be gone."""
    _Reader(member, ended, history).read(_lines(path))


def _lines(path: Path) -> Iterable[dict[str, object]]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            return  # nothing follows a line that was cut off


class _Reader:
    """Turns one member's events into tenures and commits."""

    def __init__(self, member: str, ended: int, history: GroupHistory) -> None:
        self._member = member
        self._ended = ended
        self._history = history
        self._held: dict[Partition, tuple[int, list[int]]] = {}
        self._committing: tuple[int, dict[Partition, int]] | None = None

    def read(self, lines: Iterable[dict[str, object]]) -> None:
        for line in lines:
            at = line["at"]
            assert isinstance(at, int)
            getattr(self, f"_{line['kind']}")(at, line.get("data"))
        for partition in list(self._held):
            self._give_up(partition, self._ended, "ended")
        if self._committing is not None:
            self._commits_end(self._ended, ok=False)

    def _assigned(self, at: int, data: list[list[object]]) -> None:
        for partition in _partitions(data):
            self._held[partition] = (at, [])

    def _revoked(self, at: int, data: list[list[object]]) -> None:
        for partition in _partitions(data):
            self._give_up(partition, at, "revoked")

    def _lost(self, at: int, data: list[list[object]]) -> None:
        for partition in _partitions(data):
            self._give_up(partition, at, "lost")

    def _polled(self, _: int, data: list[list[object]]) -> None:
        for topic, index, offsets in data:
            assert isinstance(offsets, list)
            held = self._held.get((str(topic), int(str(index))))
            assert held is not None, f"{self._member} read {topic}-{index} that it does not own"
            held[1].extend(offsets)

    def _committing_now(self, at: int, data: list[list[object]]) -> None:
        self._committing = (
            at,
            {(str(topic), int(str(index))): int(str(offset)) for topic, index, offset in data},
        )

    def _committed(self, at: int, data: bool) -> None:
        self._commits_end(at, ok=data)

    def _commits_end(self, at: int, *, ok: bool) -> None:
        assert self._committing is not None
        began, offsets = self._committing
        self._committing = None
        for partition, offset in offsets.items():
            self._history.commits.append(Commit(self._member, partition, began, at, offset, ok))

    def _give_up(self, partition: Partition, at: int, how: str) -> None:
        if partition in self._held:
            began, offsets = self._held.pop(partition)
            self._history.tenures.append(
                Tenure(self._member, partition, began, at, how, tuple(offsets))
            )


def _partitions(data: list[list[object]]) -> list[Partition]:
    return [(str(topic), int(str(index))) for topic, index in data]
