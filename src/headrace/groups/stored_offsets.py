"""Committed offsets straight from their stored bytes, for loads of a hundred thousand of them.

Nearly all records of `__consumer_offsets` are commits, and the codec's objects would be built only
to be taken apart again. What is read here is what `records.decode` would give; anything unusual is
left to it. Names, partitions and topic ids that occur more than once become one object.
"""

from struct import Struct as Format
from typing import Final, NamedTuple
from uuid import UUID

from headrace.core.ids import NO_TOPIC_ID, TopicPartition
from headrace.groups.offsets import OffsetAndMetadata
from headrace.groups.records import GroupRecord, decode

_COMMIT: Final = b"\0\1"
_VERSION_4: Final = b"\0\4"
_VALUE: Final = Format(">2xqiB")
_TIME: Final = Format(">q")
_METADATA_AT: Final = 15
_NO_TAGS: Final = b"\0"
# One tagged field, number 0, of sixteen bytes: the topic's id.
_ONE_ID: Final = b"\1\0\x10"
_ID_SIZE: Final = len(_ONE_ID) + 16


class StoredOffset(NamedTuple):
    group_id: str
    partition: TopicPartition
    committed: OffsetAndMetadata


class GroupRecordDecoder:
    """Reads the records of one log."""

    def __init__(self) -> None:
        self._offsets = OffsetReader()

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | StoredOffset | None:
        """The record that was stored; None for a kind that this broker does not keep."""
        return self._offsets.read(key, value) or decode(key, value)


class OffsetReader:
    """Reads the commits of one log."""

    def __init__(self) -> None:
        self._groups: dict[bytes, str] = {}
        self._partitions: dict[bytes, TopicPartition] = {}
        self._topic_ids: dict[bytes, UUID] = {}

    def read(self, key: bytes, value: bytes | None) -> StoredOffset | None:
        """The commit in a record of the usual form; None for every other record."""
        if value is None or key[:2] != _COMMIT or value[:2] != _VERSION_4 or len(key) < 4:
            return None
        group_end = 4 + (key[2] << 8 | key[3])
        partition = self._partitions.get(key[group_end:]) or self._new_partition(key[group_end:])
        committed = self._committed(value)
        if partition is None or committed is None:
            return None
        group = key[4:group_end]
        group_id = self._groups.get(group)
        if group_id is None:
            group_id = self._groups[group] = str(group, "utf-8")
        return StoredOffset(group_id, partition, committed)

    def _new_partition(self, data: bytes) -> TopicPartition | None:
        size = int.from_bytes(data[:2], "big")
        if len(data) != size + 6:
            return None
        index = int.from_bytes(data[-4:], "big", signed=True)
        partition = self._partitions[data] = TopicPartition(str(data[2:-4], "utf-8"), index)
        return partition

    def _committed(self, value: bytes) -> OffsetAndMetadata | None:
        if len(value) < _METADATA_AT:
            return None
        offset, leader_epoch, size = _VALUE.unpack_from(value)
        time_at = _METADATA_AT - 1 + size
        tags = value[time_at + _TIME.size :]
        if not 0 < size < 128 or not tags:
            return None
        topic_id: UUID | None = NO_TOPIC_ID
        if tags != _NO_TAGS:
            topic_id = self._topic_ids.get(tags) or self._new_id(tags)
        if topic_id is None:
            return None
        metadata = str(value[_METADATA_AT:time_at], "utf-8") if size > 1 else ""
        commit_ms: int = _TIME.unpack_from(value, time_at)[0]
        return OffsetAndMetadata(offset, leader_epoch, metadata, commit_ms, -1, topic_id)

    def _new_id(self, tags: bytes) -> UUID | None:
        if len(tags) != _ID_SIZE or not tags.startswith(_ONE_ID):
            return None
        topic_id = self._topic_ids[tags] = UUID(bytes=tags[len(_ONE_ID) :])
        return topic_id
