"""Records as Apache Kafka 4.3 was seen to write them: read, and written again byte for byte."""

from headrace.groups.records import decode, encode
from headrace.protocol.schemas.consumer_groups import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)

_KEY = b"\x00\x05\x00\x01g\x00\x167D6gOtpZSu6oOvfMvhqM9Q"
_MEMBER = b"\x00\x00\x00\x00\x08rdkafka\x0b/127.0.0.1\x02\x05work\x01\x00\x04\x93\xe0\x00"


def test_a_member_of_the_new_protocol_says_that_it_is_not_a_classic_one() -> None:
    value = _MEMBER + b"\x01\x00\x01\x00"  # one tagged field: tag 0, one byte, null
    record = decode(_KEY, value)
    assert record is not None
    assert isinstance(record.value, ConsumerGroupMemberMetadataValue)
    assert record.value.classic_member_metadata is None
    assert encode(record) == (_KEY, value)


def test_a_classic_member_is_marked_as_such() -> None:
    record = decode(_KEY, _MEMBER + b"\x01\x00\x01\x00")
    assert record is not None
    assert isinstance(record.value, ConsumerGroupMemberMetadataValue)
    record.value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=6_000)
    key, value = encode(record)
    # The marker, the session timeout, no protocols and no tags of its own.
    assert value == _MEMBER + b"\x01\x00\x07\x01\x00\x00\x17\x70\x01\x00"
    assert decode(key, value) == record
