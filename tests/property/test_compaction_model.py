"""Compaction against a list of records, over random histories (I24).

The model knows nothing of files: batches are lists of records, and each round of compaction is a
few lines over them. Real and model log must agree in every record, offset, timestamp and header
after every round, with all codecs, spilling or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, record_payload
from headrace.protocol.records.encode import encode_batch, pack_batch
from headrace.protocol.records.header import BatchHeader, parse_header
from tests.simulation.disk import SimulatedFileSystem
from tests.support.compacted_log import CompactedLog

RETENTION_MS = 500


@dataclass
class ModelBatch:
    """A batch as the model sees it; `records` shrinks, the rest stays."""

    base_offset: int
    last_offset: int
    producer: tuple[int, int]
    records: list[Record]
    horizon: int | None = None


class History:
    """A random log and its model, grown and compacted side by side."""

    def __init__(self, source: Random, key_count: int) -> None:
        self._source = source
        self._key_count = key_count
        self.log = CompactedLog(SimulatedFileSystem())
        self.model: list[ModelBatch] = []
        self.now_ms = 10_000
        self._sequences: dict[int, int] = {}
        self.last_offsets: dict[int, int] = {}

    def grow(self) -> None:
        """One more segment with a few batches."""
        offset = self.log.end_offset
        encoded: list[bytes] = []
        for _ in range(self._source.randint(1, 4)):
            count = self._source.randint(1, 8)
            encoded.append(self._batch(offset, count))
            offset += count
        self.log.add_segment(encoded)

    def _batch(self, offset: int, count: int) -> bytes:
        source = self._source
        records = [
            Record(
                offset + index,
                self.now_ms + source.randint(-50, 50),
                self._key(),
                None if source.random() < 0.25 else source.randbytes(source.randint(0, 30)),
                ((source.choice("abc"), b"h"),) if source.random() < 0.2 else (),
            )
            for index in range(count)
        ]
        producer, sequence = -1, -1
        if source.random() < 0.5:
            producer = source.randint(1, 3)
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + count
            self.last_offsets[producer] = offset + count - 1
        codec = source.choice(list(Codec))
        batch = bytes(
            encode_batch(
                records,
                codec=codec,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence,
            )
        )
        if codec == Codec.SNAPPY and source.random() < 0.5:
            batch = _in_one_raw_block(batch)
        self.model.append(ModelBatch(offset, offset + count - 1, (producer, sequence), records))
        return batch

    def _key(self) -> bytes | None:
        if self._source.random() < 0.03:
            return None
        return b"key-%d" % self._source.randrange(self._key_count)

    def compact(self, memory_bytes: int, segment_bytes: int) -> None:
        request = self.log.request(
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=segment_bytes,
            memory_bytes=memory_bytes,
            producers=list(self.last_offsets.items()),
        )
        result = self.log.compact(request)
        assert result.batches_unreadable == 0
        self._compact_model()
        assert result.records_kept == sum(len(batch.records) for batch in self.model)

    def _compact_model(self) -> None:
        newest = {r.key: r.offset for batch in self.model for r in batch.records if r.key}
        kept: list[ModelBatch] = []
        for batch in self.model:
            expired = batch.horizon is not None and batch.horizon <= self.now_ms
            batch.records = [
                r
                for r in batch.records
                if r.key is not None
                and newest[r.key] == r.offset
                and not (r.value is None and expired)
            ]
            if batch.horizon is None and any(r.value is None for r in batch.records):
                batch.horizon = self.now_ms + RETENTION_MS
            is_last = self.last_offsets.get(batch.producer[0]) == batch.last_offset
            if batch.records or is_last:
                kept.append(batch)
        self.model = kept

    def check(self) -> None:
        found = self.log.batches()
        assert [records for _, records in found] == [batch.records for batch in self.model]
        for (header, records), batch in zip(found, self.model, strict=True):
            assert (header.base_offset, header.last_offset) == (
                batch.base_offset,
                batch.last_offset,
            )
            assert (header.producer_id, header.base_sequence) == batch.producer
            assert header.record_count == len(records)
            if records:
                assert header.delete_horizon == batch.horizon


def _in_one_raw_block(batch: bytes) -> bytes:
    header: BatchHeader = parse_header(batch)
    return bytes(
        pack_batch(
            bytes(cramjam.snappy.compress_raw(record_payload(batch, header))),
            attributes=Codec.SNAPPY,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            record_count=header.record_count,
            base_offset=header.base_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    )


def _run(seed: int, key_count: int, spills: bool, joins: bool) -> None:
    source = Random(seed)
    history = History(source, key_count)
    for _ in range(source.randint(1, 5)):
        for _ in range(source.randint(1, 4)):
            history.grow()
        history.now_ms += source.choice((0, 100, RETENTION_MS, 2 * RETENTION_MS))
        history.compact(1000 if spills else 1 << 20, 1 << 20 if joins else 1)
        history.check()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from((1, 3, 40)), st.booleans(), st.booleans())
def test_compaction_agrees_with_the_model(
    seed: int, key_count: int, spills: bool, joins: bool
) -> None:
    _run(seed, key_count, spills, joins)


@pytest.mark.long
def test_compaction_agrees_with_the_model_over_thousands_of_histories() -> None:
    for seed in range(5000):
        _run(seed, (1, 3, 40, 200)[seed % 4], seed % 8 == 0, seed % 2 == 0)
