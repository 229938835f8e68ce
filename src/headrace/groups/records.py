"""Records of `__consumer_offsets` between objects and bytes."""

from typing import NamedTuple

from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer
from headrace.protocol.message import Message
from headrace.protocol.schemas.coordinator_frame import (
    GROUP_RECORDS,
    decode_record,
    encode_key,
    encode_versioned,
)
from headrace.protocol.schemas.group_offsets import GroupMetadataValue, OffsetCommitValue

# The versions that Apache Kafka 4.3 writes.
GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
# The only version with a field for a commit's own retention time (OffsetCommit v2 to v4).
OFFSET_COMMIT_EXPIRING_VERSION = 1


class GroupRecord(NamedTuple):
    """One change of a shard; without a value it deletes what the key names."""

    key: Message
    value: Message | None


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they are stored."""
    key, value = record
    if value is None:
        return encode_key(key), None
    return encode_key(key), encode_versioned(value, _version_of(value))


def decode(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    """The record that was stored; None for a kind that this broker does not keep."""
    if len(key) < 2:
        raise MalformedMessage("a group record has no type")
    if int.from_bytes(key[:2], "big", signed=True) not in GROUP_RECORDS:
        return None
    return GroupRecord(*decode_record(GROUP_RECORDS, key, value))


def _version_of(value: Message) -> int:
    if isinstance(value, OffsetCommitValue):
        return (
            OFFSET_COMMIT_VERSION if value.expire_timestamp < 0 else OFFSET_COMMIT_EXPIRING_VERSION
        )
    if isinstance(value, GroupMetadataValue):
        return GROUP_METADATA_VERSION
    return value.schema.highest_version
