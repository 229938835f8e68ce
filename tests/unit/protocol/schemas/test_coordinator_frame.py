"""Keys and values of the coordinators' topics."""

from __future__ import annotations

import pytest

from headrace.core.errors import MalformedMessage
from headrace.protocol.schemas.consumer_protocol import (
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from headrace.protocol.schemas.coordinator_frame import (
    GROUP_RECORDS,
    TRANSACTION_RECORDS,
    decode_record,
    decode_versioned,
    encode_key,
    encode_versioned,
)
from headrace.protocol.schemas.group_offsets import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.schemas.transaction_log import TransactionLogKey, TransactionLogValue

KEY = OffsetCommitKey(group="g", topic="t", partition=1)


def test_a_committed_offset_is_a_typed_key_and_a_versioned_value() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="", commit_timestamp=7)
    assert encode_key(KEY) == bytes.fromhex("0001 0001 67 0001 74 00000001")
    stored = encode_versioned(value, 3)
    assert stored[:2] == b"\0\3"
    assert decode_record(GROUP_RECORDS, encode_key(KEY), stored) == (KEY, value)


def test_a_null_value_deletes() -> None:
    assert decode_record(GROUP_RECORDS, encode_key(KEY), None) == (KEY, None)


def test_a_transaction_is_read_back() -> None:
    key = TransactionLogKey(transactional_id="x")
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=0,
        transaction_last_update_timestamp_ms=4,
        transaction_start_timestamp_ms=5,
    )
    stored = encode_versioned(value, 1)
    assert decode_record(TRANSACTION_RECORDS, encode_key(key), stored) == (key, value)


def test_a_subscription_starts_with_its_version() -> None:
    owned = [OwnedPartitions(topic="a", partitions=[0, 2])]
    subscription = ConsumerProtocolSubscription(topics=["a"], owned_partitions=owned)
    data = encode_versioned(subscription, 1)
    assert decode_versioned(ConsumerProtocolSubscription, data) == (subscription, 1)


@pytest.mark.parametrize("key", ["", "00", "0063 0000", "0001 0001 67"])
def test_a_broken_key_is_malformed(key: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(GROUP_RECORDS, bytes.fromhex(key), None)


def test_a_value_of_an_unknown_version_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode_record(GROUP_RECORDS, encode_key(KEY), b"\0\x63")
