"""The three varints around a metadata record."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.core.errors import MalformedMessage
from headrace.protocol.schemas.metadata_cluster import FeatureLevelRecord
from headrace.protocol.schemas.metadata_frame import (
    RECORD_CLASSES,
    decode_metadata_record,
    encode_metadata_record,
)
from headrace.protocol.schemas.metadata_topics import PartitionRecord, TopicRecord

TOPIC_ID = UUID("00000000-0000-0001-0000-000000000002")


def test_a_record_is_framed_with_frame_version_type_and_version() -> None:
    record = TopicRecord(name="foo", topic_id=TOPIC_ID)
    data = encode_metadata_record(record, 0)
    assert data == bytes.fromhex("01 02 00 04 666f6f 0000000000000001 0000000000000002 00")
    assert decode_metadata_record(data) == (record, 0)


def test_the_version_of_a_record_is_given_back() -> None:
    record = PartitionRecord(topic_id=TOPIC_ID, replicas=[1], isr=[1], directories=[TOPIC_ID])
    assert decode_metadata_record(encode_metadata_record(record, 1)) == (record, 1)


def test_all_record_types_of_the_metadata_log_are_known() -> None:
    assert len(RECORD_CLASSES) == 26
    assert RECORD_CLASSES[12] is FeatureLevelRecord


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "01",
        "01 02",
        "00 02 00",
        "02 02 00 04 666f6f 0000000000000001 0000000000000002 00",
        "01 7f 00",
        "01 02 09 04 666f6f",
        "01 02 00 04 666f",
        "01 02 00 04 666f6f 0000000000000001 0000000000000002 00 ff",
    ],
)
def test_a_broken_frame_is_malformed(broken: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(bytes.fromhex(broken))
