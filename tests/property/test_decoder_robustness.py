"""Whatever bytes arrive, a decoder gives a message or a clean error: no hang, no hoarding."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import MalformedMessage
from headrace.protocol.message import Message
from tests.support.headlines import Headline
from tests.support.hostile_bytes import decoders, message_versions, outcome
from tests.support.message_values import ValueMaker, smallest

DECODERS = decoders()
MESSAGE_VERSIONS = message_versions()

# What one byte of input may cost: a small object and its place in a list.
MEMORY_PER_BYTE = 64
# Besides, the store of known ids may grow at any time.
MEMORY_BASE = 512 * 1024

decoder_indexes = st.integers(0, len(DECODERS) - 1)
interesting_bytes = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from([b"\0", b"\1", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"]),
        max_size=60,
    ).map(b"".join),
)


@settings(max_examples=1500, deadline=None)  # a hang runs into the suite's own timeout
@given(decoder_indexes, interesting_bytes)
def test_any_bytes_give_a_message_or_a_clean_error(index: int, data: bytes) -> None:
    outcome(DECODERS[index][1], data)


@settings(max_examples=1000, deadline=None)
@given(
    st.integers(0, len(MESSAGE_VERSIONS) - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from("fcid"), st.integers(0, 255)), max_size=6),
)
def test_a_damaged_message_gives_a_message_or_a_clean_error(
    index: int, seed: int, damages: list[tuple[float, str, int]]
) -> None:
    """Damages: flip a byte, cut the rest, insert a byte, delete a byte."""
    cls, version = MESSAGE_VERSIONS[index]
    data = bytearray(ValueMaker(Random(seed), polite=False).message(cls, version).encode(version))
    for where, kind, byte in damages:
        place = int(where * len(data))
        if kind == "f" and place < len(data):
            data[place] = byte
        elif kind == "c":
            del data[place:]
        elif kind == "i":
            data.insert(place, byte)
        else:
            del data[place : place + 1]
    try:
        read = cls.decode(data, version)
    except MalformedMessage:
        return
    # By bytes, since a damaged double may be a NaN, which equals nothing.
    written = read.encode(version)
    assert cls.decode(written, version).encode(version) == written


def test_no_message_can_be_cut_short_unnoticed(headline: Headline) -> None:
    cuts = 0
    for cls, version in MESSAGE_VERSIONS:
        maker = ValueMaker(Random(f"cut {cls.__name__} {version}"), polite=False)
        data = maker.message(cls, version).encode(version)
        step = max(1, len(data) // 60)
        for size in range(0, len(data), step):
            with pytest.raises(MalformedMessage):
                cls.decode(data[:size], version)
            cuts += 1
    headline(f"decoder: {cuts} cut messages of {len(MESSAGE_VERSIONS)} kinds refused")


def memory_taken(cls: type[Message], version: int, data: bytes) -> int:
    """The peak of memory while these bytes are decoded or refused."""
    tracemalloc.start()
    try:
        cls.decode(data, version)
    except MalformedMessage:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def test_lying_lengths_cost_no_memory() -> None:
    """Stretches all over the message claim two billion items or bytes."""
    for cls, version in MESSAGE_VERSIONS:
        maker = ValueMaker(Random(f"lie {cls.__name__} {version}"), polite=False)
        data = maker.message(cls, version).encode(version)[:400]
        memory_taken(cls, version, data)  # compiles the decoder, which takes memory of its own
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
            for place in range(0, len(data), max(1, len(data) // 25)):
                hostile = data[:place] + lie + data[place + len(lie) :]
                peak = memory_taken(cls, version, hostile)
                assert peak < MEMORY_BASE + MEMORY_PER_BYTE * len(hostile), (cls, version)


def test_memory_stays_in_proportion_to_the_frame(headline: Headline) -> None:
    """A frame full of the smallest items there are is the worst a sender can do."""
    worst = 0.0
    for cls, version in MESSAGE_VERSIONS:
        for name, field in cls.fields_declared.items():
            if field.kind == "array" and field.is_in(version):
                data = smallest(cls, version, name, 300).encode(version)
                assert len(getattr(cls.decode(data, version), name)) == 300
                worst = max(worst, memory_taken(cls, version, data) / len(data))
    assert worst < MEMORY_PER_BYTE
    headline(f"decoder: at most {worst:.0f} bytes of memory per byte of frame")
