"""The newest value of each key stays, at its offset; everything else goes when it may."""

from __future__ import annotations

import cramjam
import pytest

from headrace.core.errors import CorruptBatch
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import CompactionRequest, CompactionResult
from headrace.log.names import CLEANED, INDEX, LOG, TIME_INDEX, offset_name
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, record_payload
from headrace.protocol.records.encode import (
    ControlType,
    encode_batch,
    encode_control_batch,
    pack_batch,
)
from headrace.protocol.records.header import iterate_headers, parse_header
from tests.simulation.disk import SimulatedFileSystem
from tests.support.compacted_log import DIRECTORY, CompactedLog

CODECS = list(Codec)


@pytest.fixture
def log() -> CompactedLog:
    return CompactedLog(SimulatedFileSystem())


def batch(
    first: int, *pairs: tuple[str | None, str | None], codec: int = 0, time: int = 100
) -> bytearray:
    """A batch of (key, value) from offset `first` on."""
    rows = [
        Record(
            first + index,
            time + index,
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            (("h", b"x"),) if index % 3 == 2 else (),
        )
        for index, (key, value) in enumerate(pairs)
    ]
    return encode_batch(rows, codec=codec, leader_epoch=4)


def raw_snappy(content: bytes | bytearray) -> bytes:
    """As librdkafka compresses: one raw block."""
    header = parse_header(content)
    return bytes(
        pack_batch(
            bytes(cramjam.snappy.compress_raw(record_payload(content, header))),
            attributes=Codec.SNAPPY,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            record_count=header.record_count,
            base_offset=header.base_offset,
        )
    )


def contents(log: CompactedLog) -> list[tuple[int, str, str | None]]:
    return [
        (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
        for r in log.records()
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_newest_value_of_a_key_stays(log: CompactedLog, codec: Codec) -> None:
    log.add_segment([batch(0, ("a", "1"), ("b", "1"), ("a", "2"), codec=codec)])
    log.add_segment([batch(3, ("c", "1"), ("b", "2"), codec=codec), batch(5, ("d", "1"))])
    result = log.compact()
    assert contents(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "d", "1")]
    assert (result.records_read, result.records_kept, result.end_offset) == (6, 4, 6)
    assert {header.codec for header, _ in log.batches()} == {codec, 0}


def test_both_snappy_framings_are_compacted(log: CompactedLog) -> None:
    log.add_segment([raw_snappy(batch(0, ("a", "1"), ("b", "1")))])
    log.add_segment([batch(2, ("a", "2"), ("a", "3"), codec=Codec.SNAPPY)])
    log.compact()
    assert contents(log) == [(1, "b", "1"), (3, "a", "3")]


def test_batches_keep_their_offset_range_epoch_and_sequence(log: CompactedLog) -> None:
    rows = [Record(i, 100 + i, b"k%d" % (i % 2), b"v") for i in range(6)]
    log.add_segment(
        [encode_batch(rows, leader_epoch=4, producer_id=7, producer_epoch=1, base_sequence=30)]
    )
    log.compact()
    [(header, records)] = log.batches()
    assert [record.offset for record in records] == [4, 5]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 5, 2)
    assert (header.leader_epoch, header.producer_id, header.last_sequence) == (4, 7, 35)
    assert header.max_timestamp == 105


def test_the_newest_timestamp_is_that_of_what_stays(log: CompactedLog) -> None:
    rows = [Record(0, 900, b"a", b"1"), Record(1, 200, b"b", b"1"), Record(2, 300, b"a", b"2")]
    log.add_segment([encode_batch(rows)])
    log.compact()
    [(header, _)] = log.batches()
    assert header.max_timestamp == 300


def test_append_time_stays_the_batchs_time(log: CompactedLog) -> None:
    rows = [Record(0, 900, b"a", b"1"), Record(1, 900, b"a", b"2")]
    log.add_segment([encode_batch(rows, append_time=True)])
    log.compact()
    assert log.records() == [Record(1, 900, b"a", b"2")]


def test_records_without_key_go(log: CompactedLog) -> None:
    log.add_segment([batch(0, (None, "1"), ("a", "1"), (None, None))])
    log.compact()
    assert contents(log) == [(1, "a", "1")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_tombstone_stays_for_its_time_and_then_goes(log: CompactedLog, codec: Codec) -> None:
    log.add_segment([batch(0, ("a", "1"), ("b", "1"), codec=codec)])
    log.add_segment([batch(2, ("a", None), ("c", "1"), codec=codec, time=150)])
    log.compact(log.request(now_ms=5000, delete_retention_ms=1000))
    assert contents(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert [h.delete_horizon for h, _ in log.batches()] == [None, 6000]
    assert [r.timestamp for r in log.records()] == [101, 150, 151]

    assert log.compact(log.request(now_ms=5999)).replacements == ()
    log.compact(log.request(now_ms=6000))
    assert contents(log) == [(1, "b", "1"), (3, "c", "1")]
    assert [r.timestamp for r in log.records()] == [101, 151]


def test_a_tombstone_may_be_kept_for_ever(log: CompactedLog) -> None:
    """The longest `delete.retention.ms` there is; the horizon is stored in 64 bits."""
    log.add_segment([batch(0, ("a", "1"), ("b", "1"))])
    log.add_segment([batch(2, ("a", None), ("c", "1"), time=150)])
    log.compact(log.request(now_ms=5000, delete_retention_ms=2**63 - 1))
    assert [h.delete_horizon for h, _ in log.batches()] == [None, 2**63 - 1]
    assert [r.timestamp for r in log.records()] == [101, 150, 151]


def test_a_tombstone_that_is_superseded_goes_at_once(log: CompactedLog) -> None:
    log.add_segment([batch(0, ("a", None), ("b", "1"))])
    log.add_segment([batch(2, ("a", "1"))])
    log.compact()
    assert contents(log) == [(1, "b", "1"), (2, "a", "1")]
    assert all(header.delete_horizon is None for header, _ in log.batches())


def test_the_last_batch_of_an_active_producer_leaves_its_header(log: CompactedLog) -> None:
    def sent(first: int, producer: int, sequence: int) -> bytearray:
        rows = [Record(first, 100 + first, b"a", b"%d" % first)]
        return encode_batch(
            rows, producer_id=producer, producer_epoch=3, base_sequence=sequence, codec=1
        )

    log.add_segment([sent(0, 7, 0), sent(1, 7, 1), sent(2, 8, 0)])
    log.add_segment([batch(3, ("a", "new"))])
    log.compact(log.request(producers=[(7, 1)]))
    (kept, none), (_, [newest]) = log.batches()
    assert none == []
    assert (kept.producer_id, kept.producer_epoch, kept.last_sequence) == (7, 3, 1)
    assert (kept.base_offset, kept.last_offset, kept.record_count, kept.codec) == (1, 1, 0, 0)
    assert newest.value == b"new"

    # Once it is not the producer's last any more it goes too.
    log.compact(log.request(producers=[(7, 9)]))
    assert [header.base_offset for header, _ in log.batches()] == [3]


def test_nothing_is_written_where_nothing_changes(log: CompactedLog) -> None:
    log.add_segment([batch(0, ("a", "1"), ("b", "1"))])
    before = len(log.files.operations)  # type: ignore[attr-defined]  # the simulated form counts
    result = log.compact()
    assert result.replacements == ()
    assert result.records_kept == 2
    kinds = {op.kind for op in log.files.operations[before:]}  # type: ignore[attr-defined]  # same
    assert kinds <= {"sync_directory"}


def test_neighbours_are_joined_up_to_the_segment_size(log: CompactedLog) -> None:
    for first in range(0, 40, 4):
        log.add_segment([batch(first, *[(f"k{i}", "v" * 50) for i in range(first, first + 4)])])
    size = log.segments[0].size
    log.compact(log.request(segment_bytes=3 * size + size // 2))
    assert log.base_offsets == [0, 12, 24, 36]
    assert len(log.records()) == 40


def test_a_segment_may_become_empty_but_keeps_its_place(log: CompactedLog) -> None:
    log.add_segment([batch(0, ("a", "1"))])
    log.add_segment([batch(1, ("a", "2"))])
    log.compact(log.request(segment_bytes=1))
    assert log.base_offsets == [0, 1]
    assert log.segments[0].size == 0
    assert contents(log) == [(1, "a", "2")]


def test_transactions_and_markers_are_left_alone(log: CompactedLog) -> None:
    """What was aborted is unknown here: such a record neither goes nor drives another out."""
    in_transaction = encode_batch(
        [Record(1, 100, b"a", b"maybe aborted")],
        producer_id=3,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    marker = encode_control_batch(
        [(ControlType.ABORT, b"\0\0\0\0\0\0")],
        base_offset=2,
        leader_epoch=0,
        timestamp=100,
        producer_id=3,
        producer_epoch=0,
        transactional=True,
    )
    log.add_segment([batch(0, ("a", "1")), in_transaction, marker, batch(3, ("b", "1"))])
    log.add_segment([batch(4, ("b", "2"))])
    log.compact()
    assert [header.base_offset for header, _ in log.batches()] == [0, 1, 2, 4]


@pytest.mark.parametrize("damage", ["crc", "records", "stream"])
def test_a_batch_that_makes_no_sense_is_kept_as_it_is(log: CompactedLog, damage: str) -> None:
    codec = Codec.GZIP if damage == "stream" else Codec.NONE
    odd = batch(1, ("a", "2"), ("b", "2"), codec=codec)
    odd[-1] ^= 0x55
    if damage != "crc":
        header = parse_header(odd)
        odd = pack_batch(
            odd[61:-1] if damage == "records" else odd[61:],
            attributes=codec,
            last_offset_delta=1,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            record_count=2,
            base_offset=1,
        )
    log.add_segment([batch(0, ("a", "1")), odd, batch(3, ("a", "3"), ("c", "1"))])
    result = log.compact()
    assert result.batches_unreadable == 1
    content = log.files.read_file(f"{DIRECTORY}/{offset_name(0, LOG)}")
    assert bytes(odd) in content
    assert [h.base_offset for _, h in iterate_headers(content)] == [1, 3]


def test_a_data_file_that_cannot_be_walked_is_an_error_and_left_alone(log: CompactedLog) -> None:
    log.add_segment([batch(0, ("a", "1"))])
    log.add_segment([batch(1, ("a", "2"))])
    path = f"{DIRECTORY}/{offset_name(1, LOG)}"
    content = log.files.read_file(path)
    log.files.write_file(path, content[:-3])
    with pytest.raises(CorruptBatch):
        compact_log(log.files, log.request())
    assert not [n for n in log.files.list_directory(DIRECTORY) if n.endswith(CLEANED)]


@pytest.mark.parametrize("memory_bytes", [2000, 20_000])
def test_a_map_that_spills_gives_the_same_answer(memory_bytes: int) -> None:
    logs = [CompactedLog(SimulatedFileSystem()) for _ in range(2)]
    for log in logs:
        for first in range(0, 2000, 50):
            pairs = [(f"key-{(i * 7919) % 613}", f"value {i}") for i in range(first, first + 50)]
            log.add_segment([batch(first, *pairs, codec=first % 5)])
    spilling, plain = logs
    spilling.compact(spilling.request(memory_bytes=memory_bytes))
    plain.compact(plain.request(memory_bytes=1 << 30))
    assert contents(spilling) == contents(plain)
    assert len(contents(plain)) == 613
    left = [n for n in spilling.files.list_directory(DIRECTORY) if n.endswith(CLEANED)]
    assert left == [], "the scratch file is gone"


def test_indexes_point_into_the_new_data_file(log: CompactedLog) -> None:
    for first in range(0, 200, 4):
        log.add_segment(
            [batch(first, *[(f"k{i % 90}", "v" * 20) for i in range(first, first + 4)])]
        )
    log.compact()
    data = log.files.read_file(f"{DIRECTORY}/{offset_name(0, LOG)}")
    by_position = dict(iterate_headers(data))
    entries = list(
        OFFSET_ENTRY.iter_unpack(log.files.read_file(f"{DIRECTORY}/{offset_name(0, INDEX)}"))
    )
    assert len(entries) > 5
    for relative, position in entries:
        assert by_position[position].last_offset == relative
    times = list(
        TIME_ENTRY.iter_unpack(log.files.read_file(f"{DIRECTORY}/{offset_name(0, TIME_INDEX)}"))
    )
    assert times == sorted(set(times))
    assert times[-1][0] == max(header.max_timestamp for header in by_position.values())


def test_requests_and_results_survive_json(log: CompactedLog) -> None:
    log.add_segment([batch(0, ("a", "1"), ("a", "2"))])
    request = log.request(producers=[(5, 6), (7, 8)])
    assert CompactionRequest.from_json(request.to_json()) == request
    result = compact_log(log.files, request)
    assert CompactionResult.from_json(result.to_json()) == result
