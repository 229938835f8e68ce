"""Find segments below a path and walk their batches, reading only."""

import mmap
from collections.abc import Iterator
from pathlib import Path

from headrace.core.errors import StartupRefused, StorageError
from headrace.log.names import LOG, parse_offset
from headrace.protocol.records.header import BatchHeader, iterate_headers


def find_segments(path: Path) -> list[Path]:
    """The `.log` files a path means: itself, those of a partition, or of a whole data directory."""
    if path.is_file():
        if parse_offset(path.name, LOG) is None:
            raise StartupRefused(
                f"{path} is not a segment", hint="name a .log file, or a directory that has some"
            )
        return [path]
    if not path.is_dir():
        raise StartupRefused(f"{path} does not exist", hint="name a data directory or a segment")
    found = [*path.glob(f"*{LOG}"), *path.glob(f"*/*{LOG}")]
    segments = sorted(each for each in found if parse_offset(each.name, LOG) is not None)
    if not segments:
        raise StartupRefused(f"{path} holds no segments", hint="is it the broker's data directory?")
    return segments


def base_offset(segment: Path) -> int:
    offset = parse_offset(segment.name, LOG)
    assert offset is not None, "find_segments only finds names with an offset"
    return offset


def batches(segment: Path) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Each batch as (position, header, bytes); `CorruptBatch` where none can be read."""
    try:
        with segment.open("rb") as file:
            if not segment.stat().st_size:
                return
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise StorageError(f"cannot read {segment}: {error.strerror}") from error
    # Copied out batch by batch: a view that somebody keeps would keep the file mapped.
    with data, memoryview(data) as view:
        for position, header in iterate_headers(view):
            yield position, header, memoryview(bytes(view[position : position + header.size]))
