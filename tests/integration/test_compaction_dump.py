"""Kafka's dump tool reads compacted segments, their indexes, tombstones and empty batches."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.log.names import INDEX, LOG, TIME_INDEX, offset_name
from headrace.log.real_files import RealFileSystem
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.compacted_log import CompactedLog
from tests.support.groups import required
from tests.support.kafka_tools import DUMP_LOG, KafkaTools

NOW = 1_700_000_000_000


def _compacted(path: Path) -> CompactedLog:
    """Every codec, superseded records, tombstones with a horizon, a batch left empty."""
    log = CompactedLog(RealFileSystem(), str(path))
    offset = 0
    for number in range(40):
        batches = []
        for codec in Codec:
            rows = [
                Record(
                    offset + index,
                    NOW + offset + index,
                    b"key-%d" % ((offset + index) * 31 % 400),
                    None if (offset + index) % 9 == 0 else b"value" * 5,
                    (("h", b"1"),) if index == 2 else (),
                )
                for index in range(12)
            ]
            batches.append(
                encode_batch(
                    rows,
                    codec=codec,
                    leader_epoch=1,
                    producer_id=int(codec),
                    producer_epoch=0,
                    base_sequence=number * 12,
                )
            )
            offset += 12
        log.add_segment(batches)
    log.compact(log.request(now_ms=NOW + 10**7, delete_retention_ms=10**9, producers=[(0, 11)]))
    return log


def test_kafkas_dump_tool_finds_nothing_wrong_after_compaction(tmp_path: Path) -> None:
    kafka = required(KafkaTools)
    log = _compacted(tmp_path / "t-0")
    path = f"{log.directory}/{offset_name(0, '')}"
    deep, indexes = kafka.run_batch(
        [
            [DUMP_LOG, "--deep-iteration", "--files", path + LOG],
            [DUMP_LOG, "--verify-index-only", "--files", f"{path}{INDEX},{path}{TIME_INDEX}"],
        ]
    )
    for text in (deep.checked(), deep.error, indexes.checked(), indexes.error):
        for complaint in ("isvalid: false", "invalid bytes at the end", "Mismatches", "Exception"):
            assert complaint not in text, text[:2000]
    offsets = [int(number) for number in re.findall(r"\| offset: (\d+)", deep.output)]
    assert offsets == [record.offset for record in log.records()]
    headers = [header for header, _ in log.batches()]
    counts = [int(number) for number in re.findall(r"baseOffset: .*? count: (\d+)", deep.output)]
    assert counts == [header.record_count for header in headers]
    assert 0 in counts, "a batch left empty for its producer"
    horizons = deep.output.count("deleteHorizonMs: OptionalLong[")
    assert horizons == sum(header.delete_horizon is not None for header in headers) > 0
