"""A broker that has run out of descriptors: refusals while it lasts, and service afterwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.core.errors import ErrorCode
from tests.faults.wire import LATEST, Wire
from tests.support.batches import Batch
from tests.support.brokers import HeadraceProcess

if sys.platform.startswith("linux"):
    from resource import RLIMIT_NOFILE, prlimit
else:
    pytest.skip("the limits of another process can be changed on Linux", allow_module_level=True)

BATCH = Batch([(None, bytes(100_000))]).encode()
PER_SEGMENT = 10
REFUSALS = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS}


def test_a_partition_is_served_again_once_there_are_descriptors(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data", {"log.segment.bytes": str(1 << 20)})
    broker.start()
    try:
        with Wire(broker.port) as wire:
            assert wire.create("t") == 0
            assert wire.create("new") == 0
            for _ in range(PER_SEGMENT):
                assert wire.produce("t", BATCH, acks=-1).error_code == 0
            _, hard = prlimit(broker.pid, RLIMIT_NOFILE)
            # Below every number in use, none is free: a new segment has no file.
            soft, _ = prlimit(broker.pid, RLIMIT_NOFILE, (3, hard))
            # In the worst case the first of these is in the page cache of the old segment still.
            codes = [wire.produce("new", BATCH, acks=1).error_code for _ in range(2)]
            codes += [wire.produce("t", BATCH, acks=1).error_code for _ in range(PER_SEGMENT)]
            assert set(codes) - {0} <= REFUSALS
            assert any(codes)
            prlimit(broker.pid, RLIMIT_NOFILE, (soft, hard))
            for topic in ("t", "new"):
                before = wire.offset(topic, LATEST)
                assert wire.produce(topic, BATCH, acks=-1).error_code == 0
                assert wire.offset(topic, LATEST) == before + 1
        assert os.path.exists(tmp_path / "data" / "t-0")
    finally:
        broker.kill()
