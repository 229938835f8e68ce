"""A thousand partitions in a process that may open a thousand and twenty-four files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.wire import LATEST, Wire
from tests.support.batches import Batch
from tests.support.brokers import HeadraceProcess
from tests.support.headlines import Headline
from tests.support.topics import Topics

PARTITIONS = 1000
OPEN_FILES_MAX = 1024
PARTITIONS_PER_REQUEST = 50


class LimitedProcess(HeadraceProcess):
    """`headrace serve` under `ulimit -n`, both the soft and the hard one."""

    def _command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {OPEN_FILES_MAX}; exec "$@"', "sh", *super()._command()]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LimitedProcess]:
    process = LimitedProcess(tmp_path / "data")
    process.start()
    yield process
    process.kill()


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def value(partition: int, life: int) -> bytes:
    return b"partition %d life %d" % (partition, life)


def write_all(wire: Wire, life: int) -> None:
    for first in range(0, PARTITIONS, PARTITIONS_PER_REQUEST):
        batches = {
            partition: Batch([(None, value(partition, life))]).encode()
            for partition in range(first, first + PARTITIONS_PER_REQUEST)
        }
        for answer in wire.produce_all("wide", batches):
            assert (answer.error_code, answer.base_offset) == (0, life)


def read_all(wire: Wire, lives: int) -> None:
    for partition in range(PARTITIONS):
        found = wire.records("wide", 0, partition=partition)
        assert [each.value for each in found] == [value(partition, n) for n in range(lives)]


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_a_thousand_partitions_are_written_and_read_with_few_open_files(
    broker: LimitedProcess, headline: Headline
) -> None:
    limits = Path(f"/proc/{broker.pid}/limits").read_text()
    assert f"Max open files            {OPEN_FILES_MAX}" in limits
    began = time.monotonic()
    Topics(broker.bootstrap_servers).create("wide", PARTITIONS)
    created = time.monotonic()
    with Wire(broker.port) as wire:
        write_all(wire, 0)
        read_all(wire, 1)
        used = open_files(broker.pid)
        done = time.monotonic()
        # Connections still find room.
        others = [Wire(broker.port) for _ in range(300)]
        assert all(each.producer_id() >= 0 for each in others)
        for each in others:
            each.socket.close()
        write_all(wire, 1)
        read_all(wire, 2)
        used = max(used, open_files(broker.pid))
    assert used < OPEN_FILES_MAX - 300
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        assert wire.offset("wide", LATEST, partition=PARTITIONS - 1) == 2
        read_all(wire, 2)
        write_all(wire, 2)
    assert broker.stop() == 0
    said = broker.log_path.read_text()
    assert "Too many open files" not in said
    assert "Traceback" not in said
    headline(
        f"{PARTITIONS} partitions with {OPEN_FILES_MAX} open files allowed: created in "
        f"{created - began:.2f} s, written and read once in {done - created:.2f} s, "
        f"{used} files open"
    )
