"""Ways to spoil a file, all of them repeatable."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """Neither the half nor a whole number of entries stays."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 | 1])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(max(64, path.stat().st_size)))


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(path.name).randbytes(max(64, path.stat().st_size)))


def text(path: Path) -> None:
    """Something a person might have left there."""
    path.write_text("0\nsee ticket 4711\nthis file was saved by an editor\n")


def directory(path: Path) -> None:
    """A directory where a file should be."""
    path.unlink()
    path.mkdir()


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def flipped(path: Path) -> None:
    """One bit in the middle."""
    flip(path, path.stat().st_size // 2, 3)


def shifted(path: Path) -> None:
    """Offset index entries that still grow, but point into batches."""
    entry = struct.Struct(">II")
    entries = entry.iter_unpack(path.read_bytes())
    path.write_bytes(b"".join(entry.pack(offset, position + 7) for offset, position in entries))


ALL: list[Damage] = [missing, empty, cut, zeros, garbage, text, flipped]
