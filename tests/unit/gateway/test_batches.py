"""Which partition a record goes to, and how records become batches."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway import OutRecord
from headrace.gateway.batches import BatchEncoder, partition_records
from headrace.protocol.murmur2 import partition_for_key
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.header import parse_header
from headrace.protocol.records.validate import BatchRules, check_batches

NOW_MS = 1_800_000_000_000


def unpacked(data: bytearray) -> list[Record]:
    return list(iterate_records(data))


def test_records_without_a_key_take_turns() -> None:
    places, strays, turn = partition_records([OutRecord(b"v")] * 7, 3, 2)
    assert places == {2: [0, 3, 6], 0: [1, 4], 1: [2, 5]}
    assert (strays, turn) == ([], 9)


def test_a_key_goes_where_kafkas_clients_send_it() -> None:
    records = [OutRecord(b"v", key) for key in (b"alice", b"bob", b"alice")]
    places, _, turn = partition_records(records, 5, 3)
    assert turn == 3
    for partition, indexes in places.items():
        assert all(partition_for_key(records[i].key or b"", 5) == partition for i in indexes)


def test_a_partition_that_does_not_exist_is_told_apart() -> None:
    records = [OutRecord(b"a", partition=1), OutRecord(b"b", partition=2), OutRecord(b"c")]
    places, strays, _ = partition_records(records, 2, 0)
    assert places == {1: [0], 0: [2]}
    assert strays == [1]


def test_one_partition_still_refuses_others() -> None:
    assert partition_records([OutRecord(b"a", partition=1)], 1, 0).unknown == [0]


def test_a_batch_holds_what_was_given_and_now_where_no_time_was() -> None:
    records = [
        OutRecord(b"v1", b"k1", None, [("h", b"x"), ("n", None)], 5_000),
        OutRecord(None, b"k2"),
        OutRecord(b"", None, None, (), 4_000),
    ]
    [batch] = BatchEncoder(records, now_ms=NOW_MS, bytes_max=1000).encode(0, range(3))
    assert unpacked(batch.data) == [
        Record(0, 5_000, b"k1", b"v1", (("h", b"x"), ("n", None))),
        Record(1, NOW_MS, b"k2", None),
        Record(2, 4_000, None, b""),
    ]
    assert parse_header(batch.data).max_timestamp == NOW_MS


def test_a_batch_passes_the_brokers_checks() -> None:
    [batch] = BatchEncoder([OutRecord(b"v")] * 100, now_ms=NOW_MS, bytes_max=10_000).encode(
        0, range(100)
    )
    rules = BatchRules()
    [(_, header)] = check_batches(memoryview(batch.data), rules, now_ms=NOW_MS, produce_version=13)
    assert header.record_count == 100


sizes = st.lists(st.integers(0, 300), min_size=1, max_size=60)


@given(sizes, st.integers(100, 2000))
def test_no_batch_is_larger_than_asked_unless_it_is_one_record(
    lengths: list[int], bytes_max: int
) -> None:
    records = [OutRecord(bytes([index]) * length) for index, length in enumerate(lengths)]
    packer = BatchEncoder(records, now_ms=NOW_MS, bytes_max=bytes_max, producer=(7, 0))
    batches = packer.encode(4, range(len(records)))
    assert [i for batch in batches for i in batch.indexes] == list(range(len(records)))
    sequence = 0
    for batch in batches:
        header = parse_header(batch.data)
        assert header.base_sequence == batch.base_sequence == sequence
        assert len(batch.data) <= bytes_max + 61 or header.record_count == 1
        assert [r.value for r in unpacked(batch.data)] == [records[i].value for i in batch.indexes]
        sequence += header.record_count


def test_a_batch_in_halves_keeps_its_sequences() -> None:
    packer = BatchEncoder([OutRecord(b"v")] * 5, now_ms=NOW_MS, bytes_max=1000, producer=(7, 0))
    first, second = packer.split(0, range(5), 0)
    assert (list(first.indexes), first.base_sequence) == ([0, 1], 0)
    assert (list(second.indexes), second.base_sequence) == ([2, 3, 4], 2)
