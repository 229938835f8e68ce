"""Record batches for every content hypothesis can think of, and for every damage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, decode_payload, iterate_records
from headrace.protocol.records.encode import BatchBuilder, encode_batch, encode_record, recompress
from headrace.protocol.records.header import crc_matches, iterate_headers, parse_header
from headrace.protocol.records.patch import refresh_crc
from headrace.protocol.records.scan import all_sound
from headrace.protocol.records.validate import BatchRules, check_batches
from headrace.protocol.records.varint import encode_varint

payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), payloads), max_size=3).map(tuple)
times = st.integers(0, 2**50) | st.integers(1_700_000_000_000, 1_700_000_100_000)
codecs = st.sampled_from(list(Codec))


@st.composite
def record_lists(draw: st.DrawFn, gaps: bool = False) -> list[Record]:
    count = draw(st.integers(1, 20))
    offset = draw(st.integers(0, 2**62)) if gaps else 0
    rows: list[Record] = []
    for _ in range(count):
        rows.append(Record(offset, draw(times), draw(payloads), draw(payloads), draw(headers)))
        offset += draw(st.integers(1, 2000)) if gaps else 1
    return rows


@given(record_lists(gaps=True), codecs)
def test_records_come_back_as_they_went_in(rows: list[Record], codec: Codec) -> None:
    batch = encode_batch(rows, codec=codec)
    header = parse_header(batch)
    assert header.size == len(batch)
    assert crc_matches(memoryview(batch), 0, header)
    assert (header.base_offset, header.last_offset) == (rows[0].offset, rows[-1].offset)
    assert header.max_timestamp == max(row.timestamp for row in rows)
    assert list(iterate_records(batch)) == rows


@given(record_lists(), codecs, codecs)
def test_a_built_batch_passes_every_check(rows: list[Record], first: Codec, other: Codec) -> None:
    builder = BatchBuilder()
    for _, timestamp, key, value, row_headers in rows:
        builder.append(key, value, row_headers, timestamp)
    assert builder.size == len(builder.build())
    for batch in (builder.build(first), recompress(builder.build(first), other)):
        rules = BatchRules(each_record=True, timestamp_after_max_ms=2**62)
        [(_, header)] = check_batches(memoryview(batch), rules, now_ms=0)
        assert list(iterate_records(batch, 0, header)) == rows


@given(st.lists(record_lists(), min_size=1, max_size=5))
def test_a_row_of_batches_is_walked_batch_by_batch(lists: list[list[Record]]) -> None:
    buffer = b"".join(encode_batch(rows) for rows in lists)
    found = [list(iterate_records(buffer, at, header)) for at, header in iterate_headers(buffer)]
    assert found == lists


@given(record_lists(), codecs, st.data())
def test_a_damaged_batch_is_refused_or_read_but_nothing_else(
    rows: list[Record], codec: Codec, data: st.DataObject
) -> None:
    """With a CRC made good again, so that the damage reaches the parts behind it."""
    batch = encode_batch(rows, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(12, len(batch) - 1))] = data.draw(st.integers(0, 255))
    refresh_crc(batch, 0)
    rules = BatchRules(each_record=True, decompressed_bytes_max=1_000_000)
    try:
        check_batches(memoryview(batch), rules, now_ms=0)
    except HeadraceError:
        return
    assert len(list(iterate_records(batch))) == parse_header(batch).record_count


@given(record_lists(), st.data())
def test_the_quick_look_passes_what_the_slow_one_passes(
    rows: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(rows)
    for _ in range(data.draw(st.integers(0, 2))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = parse_header(batch)
    low, high = sorted((data.draw(times), data.draw(times)))
    try:
        decoded = list(iterate_records(batch))
    except HeadraceError:
        good = False
    else:
        good = all(
            record.offset == index and record.key is not None and low <= record.timestamp <= high
            for index, record in enumerate(decoded)
        )
    assert good == all_sound(
        bytes(batch[61:]),
        len(rows),
        keys_required=True,
        delta_min=low - header.base_timestamp,
        delta_max=high - header.base_timestamp,
    )


@given(st.binary(max_size=300), st.integers(0, 2**31 - 1))
def test_any_bytes_as_records_give_a_clean_error(payload: bytes, count: int) -> None:
    header = parse_header(encode_batch([Record(0, 0, b"", b"")]))._replace(record_count=count)
    try:
        decoded = list(decode_payload(payload, header))
    except HeadraceError:
        return
    assert len(decoded) == count


@given(st.binary(max_size=200))
def test_any_bytes_as_batches_give_a_clean_error(content: bytes) -> None:
    try:
        check_batches(memoryview(bytearray(content)), now_ms=0)
        raise AssertionError("no random bytes have a valid CRC")
    except HeadraceError:
        pass


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_hold_every_64_bit_number(number: int) -> None:
    encoded = encode_varint(number)
    assert len(encoded) <= 10
    n = 0
    for shift, byte in enumerate(encoded):
        n |= (byte & 0x7F) << (7 * shift)
    assert (n >> 1) ^ -(n & 1) == number


@given(payloads, payloads, headers)
def test_a_record_says_its_own_length(
    key: bytes | None, value: bytes | None, row_headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    record = encode_record(0, 0, key, value, row_headers)
    prefix = (
        encode_varint(len(record) - 1) if len(record) - 1 < 64 else encode_varint(len(record) - 2)
    )
    assert record.startswith(prefix)
