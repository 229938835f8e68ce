"""The newest record of each key, however little memory there is."""

from __future__ import annotations

import random

import pytest

from headrace.log.compaction.key_map import KeyMap, Survivors
from tests.simulation.disk import SimulatedFileSystem


def _survivors(memory_bytes: int, bytes_expected: int, keys: list[bytes]) -> set[int]:
    files = SimulatedFileSystem()
    files.make_directory("/d")
    key_map = KeyMap(files, "/d/scratch", memory_bytes, bytes_expected)
    for first in range(0, len(keys), 100):
        key_map.add(keys[first : first + 100], first)
        key_map.spill_if_full(first + 100)
    survivors = key_map.survivors(len(keys))
    key_map.close()
    assert files.list_directory("/d") == []
    bits = survivors.of(0, len(keys))
    return {number for number in range(len(keys)) if bits >> number & 1}


@pytest.mark.parametrize("memory_bytes", [10**9, 100_000, 20_000])
@pytest.mark.parametrize("bytes_expected", [1, 10_000_000])
def test_the_last_one_of_each_key_survives(memory_bytes: int, bytes_expected: int) -> None:
    """With a wrong guess of what is to come, too: then buckets are resolved in turns."""
    source = random.Random(3)
    keys = [b"key-%d" % source.randrange(4000) for _ in range(9000)]
    assert _survivors(memory_bytes, bytes_expected, keys) == set(
        {key: number for number, key in enumerate(keys)}.values()
    )


@pytest.mark.parametrize("memory_bytes", [0, -1])
def test_without_memory_there_is_no_map_instead_of_one_that_finds_nothing(
    memory_bytes: int,
) -> None:
    with pytest.raises(ValueError, match="cannot be kept in"):
        _survivors(memory_bytes, 1, [b"key-%d" % number for number in range(1000)])


def test_keys_with_the_same_hash_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key in one bucket: only the keys themselves tell them apart."""
    monkeypatch.setattr("headrace.log.compaction.key_map.hash", lambda _: 0, raising=False)
    keys = [b"%d" % (number % 700) for number in range(2000)]
    assert _survivors(20_000, 1, keys) == set(range(1300, 2000))


def test_large_keys_count_with_their_size() -> None:
    keys = [bytes([number]) * 100_000 for number in range(40)] * 2
    assert _survivors(1_000_000, 1, keys) == set(range(40, 80))


def test_bits_are_found_at_any_position() -> None:
    survivors = Survivors(100)
    survivors.mark({b"a": 0, b"b": 7, b"c": 8, b"d": 63, b"e": 99})
    assert survivors.of(0, 9) == 0b110000001
    assert survivors.of(7, 2) == 0b11
    assert survivors.of(60, 40) == 1 << 3 | 1 << 39
    assert survivors.of(9, 0) == 0
