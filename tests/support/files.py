"""Files that are only bytes, for what reads and never writes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.files import Buffer


class BytesFile:
    """A file of the read side: what `FileRange` and those who send it need of one."""

    def __init__(self, data: bytes, path: str = "bytes") -> None:
        self.data = data
        self.path = path
        self.read_failed = False
        # Whether every read has to wait for the disk, and what it fails with.
        self.is_cold = False
        self.error: OSError | None = None

    def size(self) -> int:
        return len(self.data)

    def read(self, position: int, size: int) -> bytes:
        if self.error is not None:
            self.read_failed = True
            raise self.error
        self.read_failed = False
        return self.data[position : position + size]

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        if self.is_cold:
            return 0
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        raise NotImplementedError

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
