"""Frames come out as they went in, however the bytes were cut on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.receive_buffer import GROW_STEP, SMALL, ReceiveBuffer
from headrace.core.errors import MalformedMessage


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def frames(buffer: ReceiveBuffer) -> list[bytes]:
    """All whole frames that are in it."""
    out: list[bytes] = []
    while (found := buffer.next_frame()) is not None:
        out.append(bytes(found))
    return out


def feed(buffer: ReceiveBuffer, data: bytes, cut: int | None = None) -> list[bytes]:
    """Push bytes through as a socket would: as much as there is room for, at most `cut`."""
    out: list[bytes] = []
    view = memoryview(data)
    while view:
        room = buffer.free_space()
        count = min(len(room), len(view), cut or len(view))
        room[:count] = view[:count]
        buffer.received(count)
        view = view[count:]
        out.extend(frames(buffer))
    return out


@given(st.lists(st.integers(0, 3 * SMALL), max_size=8), st.integers(997, 2 * SMALL))
def test_frames_survive_any_chunking(sizes: list[int], cut: int) -> None:
    payloads = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    buffer = ReceiveBuffer(16 * SMALL)
    assert feed(buffer, b"".join(map(frame, payloads)), cut) == payloads


def test_a_frame_above_the_limit_is_refused() -> None:
    buffer = ReceiveBuffer(100)
    with pytest.raises(MalformedMessage, match=r"socket\.request\.max\.bytes"):
        feed(buffer, frame(bytes(101)))


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        feed(ReceiveBuffer(100), b"\xff\xff\xff\xff")


def test_a_length_alone_claims_little_memory() -> None:
    buffer = ReceiveBuffer(1 << 30)
    feed(buffer, (1 << 29).to_bytes(4, "big"))
    assert len(buffer.free_space()) <= GROW_STEP


def test_memory_of_a_large_frame_is_given_back_when_idle() -> None:
    buffer = ReceiveBuffer(1 << 30)
    payload = bytes(4 * SMALL)
    assert feed(buffer, frame(payload)) == [payload]
    buffer.release_if_idle()
    assert len(buffer.free_space()) == SMALL
    assert feed(buffer, frame(payload)) == [payload]


def test_memory_is_kept_while_a_frame_is_incomplete() -> None:
    buffer = ReceiveBuffer(1 << 30)
    payload = bytes(4 * SMALL)
    whole = frame(payload)
    assert feed(buffer, whole[:-1]) == []
    buffer.release_if_idle()
    assert feed(buffer, whole[-1:]) == [payload]


def test_bytes_may_come_one_at_a_time() -> None:
    payloads = [b"", b"a", bytes(300)]
    assert feed(ReceiveBuffer(1000), b"".join(map(frame, payloads)), 1) == payloads


@pytest.mark.parametrize("size", [12, SMALL // 3, SMALL - 4, 3 * SMALL])
def test_there_is_room_behind_frames_that_nobody_has_taken(size: int) -> None:
    # The loop may ask once more after we stopped reading; an empty answer costs the connection.
    buffer = ReceiveBuffer(1 << 20)
    payloads = [bytes([index]) * size for index in range(8)]
    data = memoryview(b"".join(map(frame, payloads)))
    while data:
        room = buffer.free_space()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        buffer.received(count)
        data = data[count:]
    assert frames(buffer) == payloads
