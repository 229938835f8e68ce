"""The small text files beside the data: versioned tables of numbers, replaced as a whole.

    0                    version
    2                    number of entries
    orders 0 1042        one entry per line
    orders 1 987

A reader either gets a whole table or `None`: whatever cannot be understood (garbage, a cut
file, another version) is reported once and counts as absent. Each caller can live with that,
because the data is the truth; it only costs time.
"""

import logging
from collections.abc import Iterable, Mapping

from headrace.core.files import Buffer, FileSystem
from headrace.core.ids import Offset, TopicPartition

logger = logging.getLogger(__name__)

VERSION = "0"


def replace_file(files: FileSystem, path: str, data: Buffer, *, durable: bool) -> None:
    """Put `data` at `path` so that a crash leaves the old contents or the new, no mixture.

    With `durable` the contents are on disk before they take the name; without, a power cut may
    leave garbage there and the reader must be able to do without the file. Either way the
    *name* is only on disk once the caller has synced the directory.
    """
    temporary = path + ".tmp"
    files.write_file(temporary, data)
    if durable:
        file = files.open(temporary)
        try:
            file.sync()
        finally:
            file.close()
    files.rename(temporary, path)


def encode_table(rows: Iterable[tuple[object, ...]]) -> bytes:
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join((VERSION, str(len(lines)), *lines, "")).encode()


def read_table(files: FileSystem, path: str, width: int) -> list[list[str]] | None:
    """The rows of the table at `path`, each of `width` words; None if there is no good one."""
    try:
        return _rows(path, _read(files, path), width)
    except OSError as error:
        _unreadable(path, str(error))
        return None


def _read(files: FileSystem, path: str) -> bytes | None:
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


def _rows(path: str, data: bytes | None, width: int) -> list[list[str]] | None:
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        _unreadable(path, str(error))
        return None
    lines = text.split("\n")
    if len(lines) < 3 or lines[0] != VERSION or not lines[1].isdecimal():
        _unreadable(path, "no table of version 0")
        return None
    rows = [line.split(" ") for line in lines[2:] if line]
    if len(rows) != int(lines[1]):
        _unreadable(path, f"{len(rows)} entries where {lines[1]} were announced")
        return None
    if any(len(row) != width for row in rows):
        _unreadable(path, "an entry with the wrong number of words")
        return None
    return rows


def _unreadable(path: str, reason: str) -> None:
    logger.warning("checkpoint is unreadable and counts as absent: path=%s reason=%s", path, reason)


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return encode_table((tp.topic, tp.partition, offset) for tp, offset in offsets.items())


def find_offsets(files: FileSystem, path: str) -> dict[TopicPartition, Offset] | None:
    """One offset per partition; None if there is no good table."""
    return _offsets(path, read_table(files, path, 3))


def require_offsets(files: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """One offset per partition; empty if there is no good table.

    Raises `OSError` for one that is there and cannot be read now: it may be a good one, and what
    is written after it would take its place.
    """
    return _offsets(path, _rows(path, _read(files, path), 3)) or {}


def _offsets(path: str, rows: list[list[str]] | None) -> dict[TopicPartition, Offset] | None:
    if rows is None:
        return None
    offsets: dict[TopicPartition, Offset] = {}
    for topic, partition, offset in rows:
        if not partition.isdecimal() or not offset.isdecimal():
            _unreadable(path, "a partition or offset is not a number")
            return None
        offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
    return offsets


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """One offset per partition; empty if there is no good table."""
    return find_offsets(files, path) or {}


def encode_properties(values: Mapping[str, object], separator: str = "=") -> bytes:
    return "".join(f"{key}{separator}{value}\n" for key, value in values.items()).encode()


def parse_properties(data: bytes, separator: str = "=") -> dict[str, str]:
    """`key=value` lines; comments and anything without a separator are skipped."""
    values: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, found, value = line.partition(separator)
        if found and not line.startswith("#"):
            values[key.strip()] = value.strip()
    return values
