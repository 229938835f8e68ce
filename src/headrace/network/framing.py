"""Cut a byte stream into frames, reading large ones straight into their final buffer.

The connection asks `buffer()` where the next bytes should go, receives into it, and reports how
many came with `received()`. Small frames share one scratch buffer; a frame that does not fit into
it gets a buffer of its own size, so of a megabyte fetch only the first bytes are copied. The
scratch buffer begins small, since most connections see little, and grows where it is filled at
once: then more is waiting than one call to the socket brings.
"""

from headrace.network.errors import BadFrame

_SCRATCH_BYTES_MIN = 4 * 1024
_SCRATCH_BYTES_MAX = 64 * 1024
_GROWTH = 4
_LENGTH_BYTES = 4


class FrameReader:
    """Accumulates bytes of one connection; gives back whole frames without their length."""

    __slots__ = ("_end", "_filled", "_frame", "_frame_bytes_max", "_scratch", "_view")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES_MIN))
        self._end = 0  # bytes in the scratch buffer that are not yet part of a frame
        self._frame: bytearray | None = None
        self._view = self._scratch
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next received bytes belong; never empty."""
        if self._frame is not None:
            return self._view[self._filled :]
        return self._scratch[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """Take note of `count` bytes written to `buffer()`; return the frames they complete."""
        if self._frame is not None:
            self._filled += count
            if self._filled < len(self._frame):
                return []
            frame, self._frame = self._view, None
            return [frame]
        self._end += count
        was_filled = self._end == len(self._scratch)
        frames = self._cut_scratch()
        if was_filled and len(self._scratch) < _SCRATCH_BYTES_MAX:
            self._grow_for(self._frame)
        return frames

    def _cut_scratch(self) -> list[memoryview]:
        frames: list[memoryview] = []
        scratch, end, start = self._scratch, self._end, 0
        while end - start >= _LENGTH_BYTES:
            length = int.from_bytes(scratch[start : start + _LENGTH_BYTES], "big", signed=True)
            if not 0 <= length <= self._frame_bytes_max:
                raise BadFrame(length, self._frame_bytes_max)
            body = start + _LENGTH_BYTES
            if end - body >= length:
                frames.append(memoryview(bytes(scratch[body : body + length])))
                start = body + length
                continue
            if length > len(scratch) - _LENGTH_BYTES:
                self._begin_large(length, scratch[body:end])
                start = end
            break
        left = end - start
        if start and left:
            scratch[:left] = bytes(scratch[start:end])
        self._end = left
        return frames

    def _grow_for(self, frame: bytearray | None) -> None:
        if frame is not None and len(frame) > _SCRATCH_BYTES_MAX:
            return  # such frames have buffers of their own however large this one is
        # A new one: whoever receives may still hold a view of the old.
        larger = memoryview(bytearray(len(self._scratch) * _GROWTH))
        larger[: self._end] = self._scratch[: self._end]
        self._scratch = larger

    def _begin_large(self, length: int, head: memoryview) -> None:
        self._frame = bytearray(length)
        self._view = memoryview(self._frame)
        self._view[: len(head)] = head
        self._filled = len(head)
