"""Records are counted without being made."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.web.record_counts import PIECE_BYTES, count_records, records_at_most

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def count(body: bytes) -> int:
    return [0, *count_records(body)][-1]


@given(st.lists(st.fixed_dictionaries({"key": JSON, "value": JSON}), max_size=8))
def test_records_are_told_from_what_is_in_them(records: list[dict[str, object]]) -> None:
    body = msgspec.json.encode({"records": records})
    assert count(body) == len(records)
    assert records_at_most(body) >= len(records)


def test_pieces_do_not_cut_anything() -> None:
    for shift in range(-3, 4):
        record = b'{"value":"' + b"x" * (PIECE_BYTES - 30 + shift) + b'\\"{[\\\\"}'
        body = b'{"records":[' + b",".join([record] * 5) + b"]}"
        assert len(msgspec.json.decode(body)["records"]) == count(body) == 5


def test_what_is_not_json_is_counted_to_its_end() -> None:
    for body in (b"", b"]]]}}}{", b'"', b"\\", b'{"records":[{},{},{'):
        assert count(body) <= records_at_most(body)
