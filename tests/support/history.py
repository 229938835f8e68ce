"""What clients did and saw, in one order: the record that `history_checks` judges.

Every begin and end gets the next number of one counter, so "known before that send began" can
be answered. A send ends `OK` with an offset, `FAILED` for certain, or stays `UNKNOWN` (timed
out, connection lost): it may or may not be in the log. Safe to use from several threads.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from headrace.core.ids import TopicPartition

Seen = tuple[int, bytes]  # offset, value


class Outcome(Enum):
    UNKNOWN = "unknown"
    OK = "ok"
    FAILED = "failed"


@dataclass(slots=True)
class Send:
    """One record handed to a producer. Values must be unique over the whole history."""

    began: int
    producer: str
    partition: TopicPartition
    value: bytes
    acks: int
    idempotent: bool
    ended: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None


@dataclass(slots=True)
class Read:
    """What one fetch returned, and where it asked from."""

    began: int
    ended: int
    reader: str
    partition: TopicPartition
    from_offset: int
    records: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Crash:
    """A kill loses nothing written; a power cut loses what was not synced."""

    at: int
    power_cut: bool


@dataclass(frozen=True, slots=True)
class FinalScan:
    """A partition read from its start to its end after everything has healed."""

    partition: TopicPartition
    log_start_offset: int
    log_end_offset: int
    records: tuple[Seen, ...]
    batches: bytes  # the same, as whole batches


@dataclass(slots=True)
class History:
    """Filled while a run goes on; judged when it is over."""

    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    scans: list[FinalScan] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> int:
        """The next number; take it before a read begins."""
        with self._lock:
            return next(self._numbers)

    def begin_send(
        self,
        producer: str,
        partition: TopicPartition,
        value: bytes,
        *,
        acks: int = -1,
        idempotent: bool = True,
    ) -> Send:
        with self._lock:
            send = Send(next(self._numbers), producer, partition, value, acks, idempotent)
            self.sends.append(send)
            return send

    def acked(self, send: Send, offset: int) -> None:
        with self._lock:
            send.ended, send.outcome, send.offset = next(self._numbers), Outcome.OK, offset

    def failed(self, send: Send) -> None:
        """The broker said no for certain. A timeout is not that: leave such a send alone."""
        with self._lock:
            send.ended, send.outcome = next(self._numbers), Outcome.FAILED

    def read(
        self,
        reader: str,
        partition: TopicPartition,
        began: int,
        from_offset: int,
        records: Sequence[Seen],
    ) -> None:
        with self._lock:
            ended = next(self._numbers)
            self.reads.append(Read(began, ended, reader, partition, from_offset, tuple(records)))

    def crashed(self, *, power_cut: bool) -> None:
        with self._lock:
            self.crashes.append(Crash(next(self._numbers), power_cut))

    def scanned(self, scan: FinalScan) -> None:
        with self._lock:
            self.scans.append(scan)

    def count(self, outcome: Outcome) -> int:
        return sum(send.outcome is outcome for send in self.sends)

    def encode(self) -> bytes:
        """The whole history as text: equal bytes mean equal histories."""
        lines = [repr(event) for event in (*self.sends, *self.reads, *self.crashes, *self.scans)]
        return "\n".join(lines).encode()
