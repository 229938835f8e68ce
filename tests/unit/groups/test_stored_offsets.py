"""The short way from stored bytes to an offset says what the codec says, or nothing."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.core.ids import NO_TOPIC_ID, TopicPartition
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.offsets import OffsetAndMetadata, commit_record, committed_in, tombstone
from headrace.groups.records import decode, encode
from headrace.groups.stored_offsets import OffsetReader
from headrace.protocol.schemas.group_offsets import OffsetCommitKey, OffsetCommitValue

names = st.text(max_size=20)
longs = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(TopicPartition, names, st.integers(-(2**31), 2**31 - 1))
offsets = st.builds(
    OffsetAndMetadata,
    longs,
    st.integers(-(2**31), 2**31 - 1),
    st.text(max_size=130),
    longs,
    st.just(-1),
    st.one_of(st.just(NO_TOPIC_ID), st.uuids()),
)


@given(group=names, partition=partitions, committed=offsets)
def test_a_commit_is_read_as_the_codec_reads_it(
    group: str, partition: TopicPartition, committed: OffsetAndMetadata
) -> None:
    key, value = encode(commit_record(group, partition, committed))
    record = decode(key, value)
    assert record is not None
    assert isinstance(record.key, OffsetCommitKey)
    assert isinstance(record.value, OffsetCommitValue)
    stored = OffsetReader().read(key, value)
    if stored is None:
        # Only what is long takes the other way.
        assert len(committed.metadata.encode()) > 126
        return
    named = TopicPartition(record.key.topic, record.key.partition)
    assert stored == (record.key.group, named, committed_in(record.value))


def test_other_records_are_left_to_the_codec() -> None:
    partition = TopicPartition("t", 0)
    reader = OffsetReader()
    for record in (
        tombstone("g", partition),
        ClassicGroup("g").record(),
        commit_record("g", partition, OffsetAndMetadata(1, 0, "", 1, expire_ms=5)),
    ):
        assert reader.read(*encode(record)) is None


@given(
    cut=st.integers(0, 60),
    flipped=st.integers(0, 59),
    bits=st.integers(1, 255),
)
def test_damaged_bytes_are_never_read_as_something_else(cut: int, flipped: int, bits: int) -> None:
    committed = OffsetAndMetadata(7, 1, "text", 12, -1, UUID(int=3))
    key, value = encode(commit_record("group", TopicPartition("topic", 4), committed))
    assert value is not None
    broken = bytearray(value[:cut])
    if flipped < len(broken):
        broken[flipped] ^= bits
    try:
        stored = OffsetReader().read(key, bytes(broken))
    except UnicodeDecodeError:
        return
    if stored is not None:
        record = decode(key, bytes(broken))
        assert record is not None
        assert isinstance(record.value, OffsetCommitValue)
        assert stored.committed == committed_in(record.value)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1", b"\0\1\0\5g", b"\0\1\0\1g\0\1t\0\0"])
def test_a_key_that_ends_too_soon_is_no_commit(key: bytes) -> None:
    _, value = encode(commit_record("g", TopicPartition("t", 0), OffsetAndMetadata(1, 0, "", 1)))
    assert OffsetReader().read(key, value) is None
    with pytest.raises(HeadraceError):
        decode(key, value)
