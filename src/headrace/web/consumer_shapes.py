"""Bodies and queries of consumer instances, as REST Proxy v2 has them."""

from typing import Annotated, Literal

import msgspec

from headrace.core.ids import TopicPartition
from headrace.web.record_formats import Offset, PartitionNumber

Flag = Literal["true", "false"] | bool
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=600_000)]


class NewInstance(
    msgspec.Struct,
    forbid_unknown_fields=True,
    rename={
        "auto_offset_reset": "auto.offset.reset",
        "auto_commit_enable": "auto.commit.enable",
        "fetch_min_bytes": "fetch.min.bytes",
        "consumer_request_timeout_ms": "consumer.request.timeout.ms",
    },
):
    """A consumer instance to create. Numbers and flags may be strings, as in REST Proxy."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=249, pattern="^[^/]+$")] | None = (
        None
    )
    format: str = "binary"
    auto_offset_reset: str = "latest"
    auto_commit_enable: Flag = True
    fetch_min_bytes: int | str | None = None
    consumer_request_timeout_ms: int | str | None = None


class InstanceMade(msgspec.Struct):
    """Its name, and the address of its routes."""

    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Topics by name, or by a pattern (RE2 syntax)."""

    topics: list[str] = []
    topic_pattern: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class SubscriptionOut(msgspec.Struct):
    """What an instance is subscribed to."""

    topics: list[str]
    topic_pattern: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class PartitionName(msgspec.Struct, forbid_unknown_fields=True):
    """One partition of one topic."""

    topic: str
    partition: PartitionNumber

    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Partitions(msgspec.Struct, forbid_unknown_fields=True):
    """Some partitions."""

    partitions: list[PartitionName]


class PartitionOffset(msgspec.Struct, forbid_unknown_fields=True):
    """An offset in a partition, perhaps with a remark."""

    topic: str
    partition: PartitionNumber
    offset: Offset
    metadata: str | None = None

    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Offsets(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets of some partitions."""

    offsets: list[PartitionOffset]


class RecordsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How long to wait for records, and how much to return."""

    timeout: Milliseconds | None = None
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * 1024 * 1024)] = 1024 * 1024


class CommitQuery(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"async_": "async"}
):
    """REST Proxy knows `async`; the answer here always says that offsets are stored."""

    async_: Flag = "false"
