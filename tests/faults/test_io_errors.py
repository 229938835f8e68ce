"""System calls that fail with EIO under a durable broker on real files.

The broker runs in this process, so the calls can be made to fail one file at a time, exactly
where the kernel would report it: write, fdatasync, read and truncate of a data file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headrace.core.errors import ErrorCode
from headrace.core.files import Buffer
from headrace.log import descriptor_io
from headrace.log.names import RECOVERY_POINTS
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headrace.testing import Broker
from tests.faults.load import wait_until
from tests.faults.wire import LATEST, Wire
from tests.support.batches import Batch

FAILED = ErrorCode.KAFKA_STORAGE_ERROR


class FailingCalls:
    """Calls by name that fail for the files whose path ends as told."""

    def __init__(self) -> None:
        self.rules: dict[str, str] = {}

    def check(self, call: str, descriptor: int) -> None:
        ending = self.rules.get(call)
        if ending is not None and os.readlink(f"/proc/self/fd/{descriptor}").endswith(ending):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    failing = FailingCalls()
    sync, pread, pwritev = descriptor_io.sync_data, descriptor_io.pread, descriptor_io.pwritev
    ftruncate, read_at_once = os.ftruncate, descriptor_io.read_cached

    def failing_sync(descriptor: int) -> None:
        failing.check("sync", descriptor)
        sync(descriptor)

    def failing_read(descriptor: int, size: int, position: int) -> bytes:
        failing.check("read", descriptor)
        return pread(descriptor, size, position)

    def failing_read_at_once(descriptor: int, position: int, buffer: bytearray | memoryview) -> int:
        failing.check("read", descriptor)
        return read_at_once(descriptor, position, buffer)

    def failing_write(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        failing.check("write", descriptor)
        if "half a write" in failing.rules:
            # The kernel takes a part and reports the error with the next call.
            data = b"".join(buffers)
            failing.rules["write"] = failing.rules.pop("half a write")
            return pwritev(descriptor, [data[: len(data) // 2]], position)
        return pwritev(descriptor, buffers, position)

    def failing_truncate(descriptor: int, size: int) -> None:
        failing.check("truncate", descriptor)
        ftruncate(descriptor, size)

    monkeypatch.setattr(descriptor_io, "sync_data", failing_sync)
    monkeypatch.setattr(descriptor_io, "pread", failing_read)
    monkeypatch.setattr(descriptor_io, "read_cached", failing_read_at_once)
    monkeypatch.setattr(descriptor_io, "pwritev", failing_write)
    monkeypatch.setattr(os, "ftruncate", failing_truncate)
    return failing


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    # Nothing but what the test asks for may meet the failing calls.
    settings = {
        "log.retention.check.interval.ms": "3600000",
        "log.flush.offset.checkpoint.interval.ms": "3600000",
    }
    with Broker(data_dir=tmp_path, durable=True, settings=settings) as started:
        started.create_topic("ill")
        started.create_topic("well")
        with Wire(started.port) as wire:
            for topic in ("ill", "well"):
                for number in range(3):
                    assert wire.produce(topic, batch(number)).base_offset == number
        yield started


def batch(number: int) -> bytes:
    return Batch([(b"key", b"value %d" % number)]).encode()


DATA = "/ill-0/00000000000000000000.log"
Step = Callable[[Wire], None]


def others_go_on(wire: Wire, offset: int) -> None:
    answer = wire.produce("well", batch(offset))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)


def test_a_failed_sync_acknowledges_nothing_and_stops_writes_until_a_restart(
    broker: Broker, calls: FailingCalls, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(broker.port) as wire:
        calls.rules["sync"] = DATA
        assert wire.produce("ill", batch(3)).error_code == FAILED
        assert len(wire.records("ill")) == 3, "what is not on disk is shown to nobody"
        others_go_on(wire, 3)
        # The kernel calls the lost pages clean: a second sync would lie.
        calls.rules.clear()
        for acks in (-1, 1):
            assert wire.produce("ill", batch(4), acks=acks).error_code == FAILED
        assert len(wire.records("ill")) == 3
    assert "flush failed: partition=ill-0" in caplog.text
    broker.restart()
    with Wire(broker.port) as wire:
        # Its outcome was unknown: it may be there or not, but what follows comes after it.
        values = [each.value for each in wire.records("ill")]
        assert values[:3] == [b"value 0", b"value 1", b"value 2"]
        assert values[3:] in ([], [b"value 3"])
        answer = wire.produce("ill", batch(5))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, len(values))


@pytest.mark.parametrize("kind", ["write", "half a write"])
def test_a_failed_write_leaves_no_trace_and_the_next_may_succeed(
    broker: Broker, calls: FailingCalls, kind: str
) -> None:
    path = Path(broker.data_dir) / "ill-0" / "00000000000000000000.log"
    size = path.stat().st_size
    with Wire(broker.port) as wire:
        for acks in (-1, 1):
            calls.rules = {kind: DATA}
            answer = wire.produce("ill", batch(3), acks=acks)
            assert answer.error_code == FAILED
            assert "Input/output error" in (answer.error_message or "")
            assert path.stat().st_size == size
            assert wire.offset("ill", LATEST) == 3
        calls.rules.clear()
        others_go_on(wire, 3)
        answer = wire.produce("ill", batch(3))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3)
        assert len(wire.records("ill")) == 4


def test_a_write_that_cannot_be_taken_back_stops_writes_until_a_restart(
    broker: Broker, calls: FailingCalls
) -> None:
    with Wire(broker.port) as wire:
        calls.rules = {"half a write": DATA, "truncate": DATA}
        assert wire.produce("ill", batch(3)).error_code == FAILED
        calls.rules.clear()
        assert wire.produce("ill", batch(3)).error_code == FAILED
        assert len(wire.records("ill")) == 3
        others_go_on(wire, 3)
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        assert len(wire.records("ill")) == 3
        assert wire.produce("ill", batch(3)).base_offset == 3


def test_a_failed_read_is_told_for_its_partition_and_passes(
    broker: Broker, calls: FailingCalls
) -> None:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
        for topic in ("ill", "well")
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    with Wire(broker.port) as wire:
        calls.rules["read"] = DATA
        answer = wire.call(request, 12, FetchResponse)
        ill, well = (each.partitions[0] for each in answer.responses)
        assert (ill.error_code, bytes(ill.records or b"")) == (FAILED, b"")
        assert (well.error_code, bool(well.records)) == (ErrorCode.NONE, True)
        assert wire.find("ill", 0).error_code in (FAILED, ErrorCode.NONE)
        calls.rules.clear()
        assert len(wire.records("ill")) == 3


def test_a_failed_read_of_a_long_answer_costs_one_connection_and_is_then_told(
    broker: Broker, calls: FailingCalls
) -> None:
    """The head of the answer has left when its records are read; the next one is read first."""
    with Wire(broker.port) as wire:
        assert wire.produce("ill", Batch([(None, bytes(500_000))]).encode()).base_offset == 3
        calls.rules["read"] = DATA
        with pytest.raises((EOFError, ConnectionResetError)):
            wire.fetch("ill", 3)
    with Wire(broker.port) as wire:
        assert wire.fetch("ill", 3).error_code == FAILED
        assert wire.fetch("well", 0).error_code == ErrorCode.NONE
        calls.rules.clear()
        assert len(wire.records("ill", 3)) == 1


def test_a_failed_sync_of_the_metadata_refuses_changes_and_serves_data(
    broker: Broker, calls: FailingCalls
) -> None:
    metadata = "/__cluster_metadata-0/00000000000000000000.log"
    with Wire(broker.port) as wire:
        calls.rules["sync"] = metadata
        assert wire.create("new") == FAILED
        calls.rules.clear()
        assert wire.create("newer") == FAILED
        others_go_on(wire, 3)
        assert len(wire.records("ill")) == 3
    broker.restart()
    with Wire(broker.port) as wire:
        assert wire.create("newest") == ErrorCode.NONE
        others_go_on(wire, 4)


def test_checkpoints_go_on_after_one_that_could_not_be_written(
    tmp_path: Path, calls: FailingCalls, caplog: pytest.LogCaptureFixture
) -> None:
    often = {"log.flush.offset.checkpoint.interval.ms": "20"}
    table = tmp_path / "data" / RECOVERY_POINTS
    with Broker(data_dir=tmp_path / "data", settings=often) as broker, Wire(broker.port) as wire:
        broker.create_topic("t")
        calls.rules["write"] = f"/{RECOVERY_POINTS}.tmp"
        assert wire.produce("t", batch(0)).base_offset == 0
        wait_until(lambda: "Input/output error" in caplog.text, "no failed checkpoint")
        calls.rules.clear()
        assert wire.produce("t", batch(1)).base_offset == 1
        wait_until(lambda: "t 0 2\n" in table.read_text(), "no checkpoint")
