"""Streams of lines cut anywhere, and ids of events, for whatever comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.web.errors import HttpError
from headrace.web.produce_stream import BATCH_BYTES, LineSplitter
from headrace.web.streams import EventIds, parse_id

positions = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1)


@given(st.lists(st.integers(0, 200_000), max_size=6), st.integers(1, 90_000))
def test_lines_come_out_whole_however_they_come_in(sizes: list[int], step: int) -> None:
    whole = b"".join(b"x" * size + b"\n" for size in sizes) + b"rest"
    lines = LineSplitter(1_000_000)
    out = []
    for at in range(0, len(whole), step):
        out += lines.feed(whole[at : at + step])
    assert b"".join(out) + lines.finish() == whole
    assert lines.finish() == b"rest"
    assert all(batch.endswith(b"\n") for batch in out)
    # A batch is as large as asked for, or a single line.
    assert all(len(batch) <= BATCH_BYTES or batch.count(b"\n") == 1 for batch in out)


def test_a_line_that_never_ends_is_refused() -> None:
    lines = LineSplitter(1000)
    lines.feed(b"x" * 1000)
    with pytest.raises(HttpError) as refused:
        lines.feed(b"x")
    assert refused.value.error_code == 41301


@given(positions)
def test_an_id_is_read_as_it_was_written(places: dict[int, int]) -> None:
    assert parse_id(EventIds(places).now().decode()) == places


@given(positions, st.data())
def test_an_id_follows_the_records_that_were_seen(
    places: dict[int, int], data: st.DataObject
) -> None:
    ids = EventIds(places)
    seen = data.draw(st.lists(st.tuples(st.sampled_from(sorted(places)), st.integers(0, 2**62))))
    for partition, offset in seen:
        places[partition] = offset + 1
        assert parse_id(ids.after(partition, offset).decode()) == places


@given(st.text())
def test_what_is_no_id_is_refused_or_read(text: str) -> None:
    try:
        found = parse_id(text)
    except HttpError:
        return  # any other error would be one of ours
    assert all(number >= 0 for pair in found.items() for number in pair)
