"""Keys go to the partitions that every other Kafka client picks."""

from __future__ import annotations

import random

from headrace.protocol.murmur2 import murmur2, partition_for_key
from tests.support.foreign_records import aiokafka_murmur2, kafka_python_murmur2


def test_the_hash_agrees_with_other_clients() -> None:
    source = random.Random(7)
    for length in [*range(40), 100, 1000]:
        key = source.randbytes(length)
        theirs = kafka_python_murmur2(key) & 0xFFFFFFFF
        assert murmur2(key) == theirs == aiokafka_murmur2(key) & 0xFFFFFFFF


def test_known_values_from_the_java_client() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, value in known.items():
        assert murmur2(key) == value & 0xFFFFFFFF


def test_a_partition_is_always_in_range() -> None:
    partitions = {partition_for_key(b"key-%d" % i, 7) for i in range(500)}
    assert partitions == set(range(7))
