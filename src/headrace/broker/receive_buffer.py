"""Bytes from the socket, cut into frames without copying them.

One buffer per connection is reused for every frame. A frame larger than the buffer makes it
grow to that size; for such a frame exactly the missing bytes are asked for, so that nothing of
the next frame has to be moved afterwards. A buffer that has been large shrinks when idle.
"""

from struct import Struct

from headrace.core.errors import MalformedMessage

_LENGTH = Struct(">i").unpack_from

# Room for a burst of small requests; every connection holds this much while it talks.
SMALL = 16 * 1024
# Left-over bytes up to this many are moved to the front rather than read around.
SMALL_MOVE = 4 * 1024
GROW_STEP = 2 * 1024 * 1024


class ReceiveBuffer:
    """Filled by `room` and `received`, emptied by `next_frame`.

    A frame handed out is a view into the buffer and is valid only until the next call.
    """

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_start", "_view")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def free_space(self) -> memoryview:
        """Where the next bytes from the socket belong; never empty."""
        kept = self._end - self._start
        if not kept and len(self._buffer) == SMALL:
            # Nearly always: all has been taken, and what comes next has room.
            self._start = self._end = 0
            return self._view
        needed = self._needed(kept)
        if needed <= kept:
            # Whole frames wait to be taken. The loop may read once more all the same, and an
            # empty buffer would cost the connection.
            needed = kept + SMALL_MOVE
        if self._start and (kept < SMALL_MOVE or self._start + needed > len(self._buffer)):
            self._buffer[:kept] = self._view[self._start : self._end]
            self._start, self._end = 0, kept
        if needed > len(self._buffer):
            self._grow(needed, kept)
        stop = self._start + needed if needed > SMALL else max(self._start + needed, SMALL)
        return self._view[self._end : stop]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame in the buffer, without its length prefix."""
        start, end = self._start, self._end
        if end - start < 4:
            return None
        (length,) = _LENGTH(self._buffer, start)
        self._check(length)
        stop = start + 4 + length
        if stop > end:
            return None
        self._start = stop
        return self._view[start + 4 : stop]

    def release_if_idle(self) -> None:
        """Give back the memory; the next bytes will claim some anew."""
        if self._start == self._end and self._buffer:
            self._buffer = bytearray()
            self._view = memoryview(self._buffer)
            self._start = self._end = 0

    def _needed(self, kept: int) -> int:
        """Bytes of the current frame, prefix included, as far as is known."""
        if kept < 4:
            return 4
        (length,) = _LENGTH(self._buffer, self._start)
        self._check(length)
        return 4 + int(length)

    def _grow(self, needed: int, kept: int) -> None:
        """Powers of two, so that frames of slightly different sizes reuse one buffer; but never
        far ahead of what has arrived, so that a length alone cannot claim memory."""
        wanted = min(needed, max(GROW_STEP, 2 * kept))
        grown = bytearray(max(SMALL, 1 << (wanted - 1).bit_length()))
        grown[:kept] = self._view[self._start : self._end]
        self._buffer, self._view = grown, memoryview(grown)
        self._start, self._end = 0, kept

    def _check(self, length: int) -> None:
        if length < 0 or length > self._frame_bytes_max:
            raise MalformedMessage(
                f"a frame of {length} bytes is outside 0..{self._frame_bytes_max} "
                "(socket.request.max.bytes)"
            )
