"""Records between JSON and bytes: whatever is stored can be read and stored again."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.records.decode import Record
from headrace.web import media
from headrace.web.record_formats import BadRecord, RecordIn, out_records, record_texts

contents = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)
types = st.sampled_from(media.RECORDS)


@given(contents, contents, headers, types)
def test_what_is_read_is_stored_again_as_it_was(
    key: bytes | None,
    value: bytes | None,
    named: tuple[tuple[str, bytes | None], ...],
    kind: str,
) -> None:
    formats = media.FORMATS[kind]
    record = Record(7, 1234, key, value, named)
    (text,) = record_texts("t", 3, [record], formats)
    assert b"\n" not in text
    shown = json.loads(text)
    assert (shown.pop("topic"), shown.pop("partition"), shown.pop("offset")) == ("t", 3, 7)
    back = msgspec.json.decode(msgspec.json.encode(shown), type=RecordIn)
    (stored,) = out_records([back], formats)
    assert stored.timestamp_ms == 1234
    assert tuple(stored.headers) == named
    for before, after in ((key, stored.key), (value, stored.value)):
        assert after == before or json.loads(after or b"") == json.loads(before or b"")


@given(json_values)
def test_json_is_stored_as_it_was_written(value: object) -> None:
    written = json.dumps(value).encode()
    record = msgspec.json.decode(b'{"value":%b}' % written, type=RecordIn)
    (stored,) = out_records([record], media.FORMATS[media.JSON])
    assert stored.value == (None if value is None else written)


@given(st.binary(max_size=60))
def test_an_answer_is_json_whatever_is_stored(value: bytes) -> None:
    for formats in media.FORMATS.values():
        (text,) = record_texts("t", 0, [Record(0, 0, value, value)], formats)
        json.loads(text)


@pytest.mark.parametrize("value", ["x===", "not base64", "Zm9vY", "Z", "é"])
def test_bad_base64_is_refused_with_the_number_of_the_record(value: str) -> None:
    good = RecordIn(value=msgspec.Raw(b'"Zm9v"'))
    bad = RecordIn(value=msgspec.Raw(json.dumps(value).encode()))
    with pytest.raises(BadRecord, match="record 1: this is not base64"):
        out_records([good, bad], media.FORMATS[media.KAFKA_BINARY])


def test_a_partition_of_the_path_wins_over_that_of_a_record() -> None:
    record = RecordIn(value=msgspec.Raw(b"1"), partition=5)
    assert out_records([record], media.FORMATS[media.JSON], partition=2)[0].partition == 2
