"""Cutting a byte stream into frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import BadFrame
from headrace.network.framing import FrameReader


def feed(reader: FrameReader, data: bytes, pieces: list[int]) -> list[bytes]:
    """Give `data` to the reader in pieces of these sizes, again and again."""
    frames: list[bytes] = []
    position = turn = 0
    while position < len(data):
        room = reader.buffer()
        count = min(len(room), len(data) - position, pieces[turn % len(pieces)])
        room[:count] = data[position : position + count]
        position, turn = position + count, turn + 1
        frames += [bytes(frame) for frame in reader.received(count)]
    return frames


@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 300), st.integers(4_000, 17_000), st.integers(60_000, 200_000)),
        max_size=8,
    ),
    pieces=st.lists(st.integers(1, 90_000), min_size=1, max_size=5),
)
def test_frames_come_out_whole_however_the_bytes_arrive(
    sizes: list[int], pieces: list[int]
) -> None:
    frames = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    if max(pieces) < 50:
        pieces = [*pieces, 5000]
    assert feed(FrameReader(1 << 20), stream, pieces) == frames


def test_a_frame_keeps_its_bytes_when_the_next_ones_arrive() -> None:
    reader = FrameReader(1000)
    reader.buffer()[:5] = b"\0\0\0\x01a"
    (first,) = reader.received(5)
    reader.buffer()[:5] = b"\0\0\0\x01b"
    (second,) = reader.received(5)
    assert (bytes(first), bytes(second)) == (b"a", b"b")


def test_the_buffer_is_small_until_more_is_waiting_than_it_takes() -> None:
    reader = FrameReader(1 << 20)
    frame = b"\0\0\x03\xe8" + bytes(1000)
    assert feed(reader, frame * 20, [1004]) == [bytes(1000)] * 20
    assert len(reader.buffer()) == 4096
    assert feed(reader, frame * 200, [1 << 20]) == [bytes(1000)] * 200
    assert len(reader.buffer()) == 65536


@pytest.mark.parametrize(("size", "grown"), [(20_000, 65536), (1 << 20, 4096)])
def test_frames_that_would_fit_a_larger_buffer_make_it_grow(size: int, grown: int) -> None:
    """The first 4 KiB of a frame of a megabyte are copied, not 64 KiB of it."""
    reader = FrameReader(1 << 24)
    frame = size.to_bytes(4, "big") + bytes(size)
    for _ in range(3):
        assert feed(reader, frame, [1 << 24]) == [bytes(size)]
    assert len(reader.buffer()) == grown


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"HTTP"])
def test_a_length_that_no_broker_sends_is_refused_before_memory_is_taken(length: bytes) -> None:
    reader = FrameReader(1 << 20)
    reader.buffer()[:4] = length
    with pytest.raises(BadFrame, match="TLS"):
        reader.received(4)
