"""Brokers that are broken on purpose, and the checker that finds each of them out.

Only what the broker does is changed, never what the clients record. The same run with the same
harmless troubles (kills, lost answers, refused appends) and an unbroken broker finds nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import pack_into, unpack_from
from typing import Any

import pytest

from headrace.broker.connection import Connection, ResponseSlot
from headrace.core.errors import StorageError
from headrace.core.files import Buffer, FileRange
from headrace.core.ids import Offset
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.log.producer_state import ProducerStates
from headrace.log.recovery import _Recovery
from headrace.log.segment import LogSlice, Segment
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import BatchHeader, iterate_headers
from headrace.protocol.records.patch import refresh_crc
from headrace.replication.partition import Partition
from headrace.testing import Broker
from tests.faults.dump import METADATA
from tests.faults.kill_run import KillRun
from tests.support.files import BytesFile

Break = Callable[[pytest.MonkeyPatch], None]
Batches = Sequence[tuple[int, BatchHeader]]


def _found(directory: Path, monkeypatch: pytest.MonkeyPatch, *breaks: Break) -> set[str]:
    """The invariants that a short run with these breaks violates."""
    with Broker(data_dir=directory) as broker:
        run = KillRun(broker, seed=1, cut_starts=False)
        for each in breaks:
            each(monkeypatch)
        with run.load():
            run.kill_and_restart()
            run.wait_for_answers(300)
        return {violation.invariant for violation in run.judge(directory)}


# Troubles that a sound broker must live with


def lose_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hang up after an append instead of answering, now and then: it will be sent again."""
    sound_append, sound_complete = Partition.append, Connection.fill
    numbers = itertools.count(1)
    lost = False

    def append(self: Partition, batches: Batches, buffer: memoryview, acks: int) -> AppendInfo:
        nonlocal lost
        lost = batches[0][1].producer_id >= 0 and next(numbers) % 5 == 0
        return sound_append(self, batches, buffer, acks)

    def complete(self: Connection, answer: ResponseSlot, parts: Sequence[Buffer]) -> None:
        nonlocal lost
        if lost:
            lost = False
            self.abort()
        else:
            sound_complete(self, answer, parts)

    monkeypatch.setattr(Partition, "append", append)
    monkeypatch.setattr(Connection, "fill", complete)


def refuse_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails now and then, before anything is written."""
    sound, numbers = Partition.append, itertools.count(1)

    def append(self: Partition, *arguments: Any) -> AppendInfo:
        if next(numbers) % 7 == 0:
            raise StorageError("the disk had a bad moment")
        return sound(self, *arguments)

    monkeypatch.setattr(Partition, "append", append)


# Breaks


def forget_a_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery takes the last good batch for a torn one."""
    sound = _Recovery._scan

    def scan(self: _Recovery, segment: Segment, position: int, size: int) -> int:
        end = sound(self, segment, position, size)
        batches = list(iterate_headers(segment.file.read(0, end)))
        if segment is not self.segments[-1] or not batches or METADATA in self.directory:
            return end
        last, header = batches[-1]
        segment.truncate(last)
        self.next_offset = header.base_offset
        return last

    monkeypatch.setattr(_Recovery, "_scan", scan)


def acknowledge_without_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, numbers = Partition.append, itertools.count(1)

    def append(self: Partition, batches: Batches, buffer: memoryview, acks: int) -> AppendInfo:
        # An idempotent producer would notice by itself.
        if batches[0][1].producer_id >= 0 or next(numbers) % 5:
            return sound(self, batches, buffer, acks)
        first = self.log.log_end_offset
        last = Offset(first + batches[0][1].last_offset_delta)
        return AppendInfo(first, last, -1, self.log.log_start_offset, True)

    monkeypatch.setattr(Partition, "append", append)


def give_an_offset_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Partition.append

    def append(self: Partition, *arguments: Any) -> AppendInfo:
        info = sound(self, *arguments)
        return info._replace(first_offset=Offset(max(0, info.first_offset - 1)))

    monkeypatch.setattr(Partition, "append", append)


def reverse_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right records at the right offsets, but the last comes first."""

    def reverse(header: BatchHeader, buffer: memoryview) -> None:
        records = list(iterate_records(buffer, 0, header))
        values = [record.value for record in reversed(records)]
        buffer[:] = encode_batch(
            [record._replace(value=value) for record, value in zip(records, values, strict=True)],
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    _change_appends(monkeypatch, reverse)


def write_wrong_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(_: BatchHeader, buffer: memoryview) -> None:
        pack_into(">q", buffer, 35, 5)  # the highest timestamp
        refresh_crc(buffer, 0)

    _change_appends(monkeypatch, change)


def _change_appends(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[BatchHeader, memoryview], None]
) -> None:
    sound = Partition.append

    def append(self: Partition, batches: Batches, buffer: memoryview, acks: int) -> AppendInfo:
        change(batches[0][1], buffer)
        return sound(self, batches, buffer, acks)

    monkeypatch.setattr(Partition, "append", append)


def forget_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda _, __: None)


def change_records_on_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def alter(batch: bytearray) -> None:
        # The last byte is the header count, the one before it the end of the value.
        batch[-2] = ord("x")
        refresh_crc(batch, 0)

    _change_some_reads(monkeypatch, alter)


def skip_batches_on_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _change_some_reads(monkeypatch, bytearray.clear)


def _change_some_reads(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[bytearray], None]
) -> None:
    sound, numbers = PartitionLog.find, itertools.count(1)

    def find(self: PartitionLog, start: Offset, *arguments: Any, **named: Any) -> LogSlice:
        found, end = sound(self, start, *arguments, **named)
        data = b"" if found is None else found.read()
        size = 12 + unpack_from(">i", data, 8)[0] if data else 0
        if size == len(data) or METADATA in self.directory or next(numbers) % 3:
            return found, end
        first = bytearray(data[:size])
        change(first)
        changed = BytesFile(bytes(first) + data[size:])
        return FileRange(changed, 0, changed.size()), end

    monkeypatch.setattr(PartitionLog, "find", find)


def test_a_sound_broker_under_the_same_troubles_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(tmp_path, monkeypatch, lose_answers, refuse_appends) == set()


@pytest.mark.parametrize(
    ("breaks", "invariants"),
    [
        ([forget_a_tail], {"I1"}),
        ([acknowledge_without_writing], {"I1", "I3"}),
        ([give_an_offset_twice], {"I1", "I2", "I3"}),
        ([forget_sequences, lose_answers], {"I5"}),
        ([reverse_batches], {"I6"}),
        ([change_records_on_the_way_out], {"I2", "I4"}),
        ([skip_batches_on_the_way_out], {"I13"}),
        ([write_wrong_times], {"I7"}),
    ],
    ids=lambda value: "+".join(each.__name__ for each in value) if isinstance(value, list) else "",
)
def test_a_broken_broker_is_found_out(
    breaks: list[Break], invariants: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invariants <= _found(tmp_path, monkeypatch, *breaks)
