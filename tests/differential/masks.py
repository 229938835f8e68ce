"""Answers made comparable: ids, times and addresses become names, lists become maps.

What is masked keeps its identity: the first producer id a broker hands out is `producer 0` on
both sides, so handing out the same one twice would still show.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.protocol.message import Struct
from headrace.protocol.records.header import HEADER_SIZE, parse_header

Plain = None | bool | int | str | list["Plain"] | dict[str, "Plain"]

_KEYS = (
    "partition_index",
    "partition",
    "index",
    "batch_index",
    "api_key",
    "node_id",
    "broker_id",
    "producer_id",
    "log_dir",
    "group_id",
    "member_id",
    "key",
)
_NAME_KEYS = ("name", "topic", "resource_name", "topic_id")
# Bytes that members of a group hand to each other; everything else that is bytes is records.
_OPAQUE = {"metadata", "assignment", "member_metadata", "member_assignment"}
_HIDDEN = {"cluster_id": "the cluster's id", "session_id": "a session"}
_SIZES = {"total_bytes", "usable_bytes"}
_DAY_MS = 86_400_000
_MADE_UP_IDS = 1 << 32
_MEMBER_ID = re.compile(r"(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONG_NUMBER = re.compile(r"-?\d{13,19}")


@dataclass(slots=True)
class Names:
    """What stands for what on one broker."""

    port: int
    data_dir: str
    uuids: dict[UUID, str] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)

    def of_member(self, value: str, prefix: str) -> str:
        """A name for a member id that the broker made up, in the order seen."""
        return self.members.setdefault(value, f"{prefix}-member {len(self.members)}")

    def of_uuid(self, value: UUID) -> str:
        """A name for an id; the null id keeps its own."""
        if value.int == 0:
            return "null id"
        if value.int < _MADE_UP_IDS:
            return f"made-up id {value.int}"
        return self.uuids.setdefault(value, f"id {len(self.uuids)}")

    def of_producer(self, value: int) -> str | int:
        """A name for a producer id, in the order seen; -1 stays."""
        if value < 0:
            return value
        return f"producer {self.producers.setdefault(value, len(self.producers))}"


def plain(value: Any, version: int, names: Names, name: str = "") -> Plain:
    """A decoded message as maps, lists and scalars."""
    if isinstance(value, Struct):
        return {
            field_name: plain(getattr(value, field_name), version, names, field_name)
            for field_name, declared in value.fields_declared.items()
            if declared.is_in(version)
        }
    if isinstance(value, (list, tuple)):
        return _listed([plain(each, version, names, name) for each in value])
    if isinstance(value, UUID):
        return names.of_uuid(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex() if name in _OPAQUE else batches(bytes(value))
    return _scalar(value, names, name)


def _scalar(value: Any, names: Names, name: str) -> Plain:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        if name in _HIDDEN and value:
            return _HIDDEN[name]
        member = _MEMBER_ID.fullmatch(value)
        if member is not None:
            return names.of_member(value, member[1])
        masked = value.replace(names.data_dir, "the data directory")
        return _LONG_NUMBER.sub(_masked_number, masked)
    assert isinstance(value, int)
    if name == "port" and value == names.port:
        return "the port"
    if name in _HIDDEN and value > 0:
        return _HIDDEN[name]
    if name in _SIZES and value > 0:
        return "some bytes"
    if name == "producer_id":
        return names.of_producer(value)
    if name == "finalized_features_epoch" and value >= 0:
        return "an epoch"
    return _without_time(value)


def _without_time(value: int) -> Plain:
    now_ms = time.time_ns() // 1_000_000
    return "now" if abs(value - now_ms) < _DAY_MS else value


def _masked_number(match: re.Match[str]) -> str:
    """Times inside a message; Kafka's lower bound of time wraps round, and moves with the clock."""
    number = int(match[0])
    return "long ago" if number < -(2**62) else str(_without_time(number))


def _listed(items: list[Plain]) -> Plain:
    """A list of structs as a map by what identifies them: brokers may order them as they like."""
    if not items or not all(isinstance(item, dict) for item in items):
        return items
    keyed: dict[str, Plain] = {}
    for item in items:
        assert isinstance(item, dict)
        key = _key_of(item)
        if key is None or key in keyed:
            return items
        keyed[key] = item
    return dict(sorted(keyed.items()))


def _key_of(item: Mapping[str, Plain]) -> str | None:
    for name in _KEYS:
        if name in item:
            return str(item[name])
    found = [str(item[name]) for name in _NAME_KEYS if item.get(name)]
    if "resource_type" in item:
        found.insert(0, str(item["resource_type"]))
    return " ".join(found) or None


def batches(records: bytes) -> Plain:
    """Record batches by what their headers say, the records themselves as a digest.

    A batch cut off at the end counts as absent: Kafka sends what the limit leaves of it, clients
    throw it away.
    """
    found: list[Plain] = []
    position = 0
    while position + HEADER_SIZE <= len(records):
        header = parse_header(records, position)
        end = position + header.size
        if end > len(records):
            break
        body = records[position + HEADER_SIZE : end]
        position = end
        found.append(
            {
                "base_offset": header.base_offset,
                "leader_epoch": header.leader_epoch,
                "attributes": header.attributes,
                "last_offset_delta": header.last_offset_delta,
                "base_timestamp": _without_time(header.base_timestamp),
                "max_timestamp": _without_time(header.max_timestamp),
                "has_producer": header.producer_id >= 0,
                "base_sequence": header.base_sequence,
                "record_count": header.record_count,
                "records": hashlib.sha256(body).hexdigest()[:12],
            }
        )
    return found


def has_error(value: Any) -> bool:
    """Whether any error code anywhere in a decoded message is not 0."""
    if isinstance(value, Struct):
        return any(
            (name.endswith("error_code") and getattr(value, name) != 0)
            or has_error(getattr(value, name))
            for name in value.fields_declared
        )
    if isinstance(value, (list, tuple)):
        return any(has_error(each) for each in value)
    return False
