"""Requests of every advertised API with very many entries in one of their arrays.

They are made from the declarations, so a new API or array is covered as soon as it is served.
Entries name what exists, what does not, or the same thing again and again; everything else in
the request is as harmless as its type allows (`validate_only`, no waiting, no records).
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.routes import ROUTES_ON
from headrace.core.listeners import ListenerType
from headrace.protocol.fields import FIXED_FORMATS, Field
from headrace.protocol.message import Message

ROUTES = ROUTES_ON[ListenerType.BROKER]

Path = tuple[str, ...]

_TOPIC_FIELDS = {"name", "topic", "topic_name", "topics", "topic_names", "subscribed_topic_names"}
_PARTITION_FIELDS = {"partition_index", "partition", "index", "partitions", "partition_indexes"}
_GROUP_FIELDS = {"group_id", "groups", "groups_names", "group_ids", "key", "coordinator_keys"}
# Whatever asks the broker to wait, or to do something that outlives the request.
_FIXED: dict[str, Any] = {
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "acks": 1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "leader_epoch": 0,
    "timestamp": -1,
    "partition_max_bytes": 1,
    "max_bytes": 1,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "resource_type": 2,
    "config_operation": 0,
    "response_partition_limit": 2_000,
    "offset": 0,
    "timeout_ms": 5_000,
    "member_epoch": 0,
    "instance_id": None,
    "group_instance_id": None,
    "cursor": None,
    "subscribed_topic_regex": None,
}
# Without an entry these mean "nothing", or "all there is", which is another question.
_NEVER_EMPTY = {"partition_data", "partitions", "partition_indexes", "configuration_keys"}

# Ask for more words about each thing.
_LONG_WORDS = {"include_synonyms", "include_documentation"}


class Entries(Enum):
    """What the entries of the long array name."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    MIXED = "known and unknown by turns"
    REPEATED = "repeated"
    ALL_OF_ONE = "all of one thing, again and again"


class Known(NamedTuple):
    """What exists on the broker."""

    topics: list[tuple[str, UUID]]
    partitions: int
    group: str
    """A classic one."""
    committer: str
    """A group that only commits offsets; requests about offsets name it."""
    consumers: str
    """One of the consumer protocol; requests about such groups name it."""


def long_arrays(cls: Any, version: int, before: Path = ()) -> Iterator[Path]:
    """Where a request of this version has arrays."""
    for name, field in cls.fields_declared.items():
        if not field.is_in(version):
            continue
        path = (*before, name)
        if field.kind == "array":
            yield path
            if field.item.kind == "struct":
                yield from long_arrays(field.item.item, version, path)
        elif field.kind == "struct":
            yield from long_arrays(field.item, version, path)


def advertised_arrays() -> list[tuple[int, int, Path]]:
    """API key, version and path of every array, in the oldest and the newest version served."""
    found = []
    for api_key, route in ROUTES.items():
        cls = route.load().request_class
        for version in sorted({route.lowest_served, route.highest_version}):
            found += [(api_key, version, path) for path in long_arrays(cls, version)]
    return found


class LongRequests:
    """Makes the requests; `known` is what their entries may name."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._group = known.group

    def request(
        self, cls: type[Message], version: int, path: Path, count: int, entries: Entries
    ) -> Message:
        """One with `count` entries in the array at `path`, one in those on the way to it."""
        known = self._known
        self._group = known.group
        if cls.__name__.startswith("Offset"):
            self._group = known.committer
        elif cls.__name__.startswith("ConsumerGroup"):
            self._group = known.consumers
        made: Message = self._struct(cls, version, path, count, entries, 0)
        return made

    def _struct(
        self, cls: Any, version: int, path: Path, count: int, entries: Entries, number: int
    ) -> Any:
        values: dict[str, Any] = {}
        for name, field in cls.fields_declared.items():
            if not field.is_in(version):
                continue
            on_the_way = bool(path) and path[0] == name
            rest = path[1:] if on_the_way else ()
            if field.kind == "array":
                if (
                    entries is Entries.ALL_OF_ONE
                    and not on_the_way
                    and field.is_nullable_in(version)
                ):
                    values[name] = None
                    continue
                size = (count if not rest else 1) if on_the_way else 0
                if not on_the_way and name in _NEVER_EMPTY:
                    size = 1
                values[name] = [
                    self._value(name, field.item, version, rest, count, entries, index)
                    for index in range(size)
                ]
            else:
                values[name] = self._value(name, field, version, rest, count, entries, number)
        return cls(**values)

    def _value(
        self,
        name: str,
        field: Field,
        version: int,
        path: Path,
        count: int,
        entries: Entries,
        number: int,
    ) -> Any:
        if field.kind == "struct":
            if field.is_nullable_in(version) and not path:
                return None
            return self._struct(field.item, version, path, count, entries, number)
        if entries is Entries.MIXED:
            entries = Entries.UNKNOWN if number % 2 else Entries.KNOWN
        elif entries in (Entries.REPEATED, Entries.ALL_OF_ONE):
            number = 0
        if entries is Entries.ALL_OF_ONE and name in _LONG_WORDS:
            return True
        if name in _FIXED:
            return _FIXED[name]
        if field.kind == "string":
            return self._text(name, field, version, entries, number)
        if field.kind == "uuid":
            known = self._known.topics
            return (
                UUID(int=number + 1)
                if entries is Entries.UNKNOWN
                else known[number % len(known)][1]
            )
        if field.kind in FIXED_FORMATS:
            return self._number(name, field, entries, number)
        return None if field.is_nullable_in(version) else b""

    def _text(
        self, name: str, field: Field, version: int, entries: Entries, number: int
    ) -> str | None:
        unknown = entries is Entries.UNKNOWN
        if name in _GROUP_FIELDS:
            return f"nobody-{number}" if unknown else self._group
        if name in _TOPIC_FIELDS or name == "resource_name":
            known = self._known.topics
            return f"nowhere-{number}" if unknown else known[number % len(known)][0]
        if name == "member_id":
            return f"member-{number}" if unknown else ""
        return None if field.is_nullable_in(version) else f"{name}-{number}"

    def _number(self, name: str, field: Field, entries: Entries, number: int) -> Any:
        if name in _PARTITION_FIELDS:
            return number if entries is Entries.UNKNOWN else number % self._known.partitions
        if field.kind == "boolean":
            return False
        if name in ("broker_ids", "resource_types"):
            return number % 100
        return 0
