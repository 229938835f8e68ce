"""Values that calls take and give back: plain, frozen, without behaviour of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from headrace.core.ids import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A place in a partition named by meaning: its ends, or a time."""

    timestamp_ms: int

    def __repr__(self) -> str:
        return _SPEC_NAMES.get(self.timestamp_ms, f"at_time({self.timestamp_ms})")


EARLIEST = OffsetSpec(-2)
LATEST = OffsetSpec(-1)
MAX_TIMESTAMP = OffsetSpec(-3)
_SPEC_NAMES = {-2: "EARLIEST", -1: "LATEST", -3: "MAX_TIMESTAMP"}


def at_time(timestamp_ms: int) -> OffsetSpec:
    """The first record whose timestamp is at least this; the end if there is none."""
    if timestamp_ms < 0:
        raise ValueError(f"a time is given in milliseconds since 1970, not {timestamp_ms}")
    return OffsetSpec(timestamp_ms)


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` is -1 with acks=0, where nobody tells."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ReceivedRecord(NamedTuple):
    """A record together with where it was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class FetchedChunk(NamedTuple):
    """One partition's share of a fetch, undecoded: whole batches, the first may begin earlier.

    `aborted` lists (producer id, first offset) of aborted transactions under read_committed.
    """

    partition: TopicPartition
    fetch_offset: int
    data: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] = ()


class ListedOffset(NamedTuple):
    """An answer of list_offsets; offset -1 when no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition as the cluster sees it; leader -1 when it has none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic with its partitions, ordered by number."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionDescription]
    is_internal: bool = False


class ConfigOperation(IntEnum):
    """What an incremental change does to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One key to change; `value` is ignored by DELETE."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a resource: its value and where that comes from."""

    name: str
    value: str | None
    source: int
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None
    synonyms: Sequence[tuple[str, str | None, int]] = ()


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One broker and the address it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its brokers and which of them is the controller."""

    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerDescription]


class ReplicaSize(NamedTuple):
    """Bytes of one replica on disk, and how far it lags behind."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One data directory of one broker; -1 bytes where the broker does not tell."""

    broker: int
    path: str
    error_code: int
    replicas: Sequence[ReplicaSize]
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """One idempotent or transactional producer as a partition's leader remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
