"""Bodies and queries of consumer instances, as REST Proxy v2 has them.

Queries, and the config of a new instance, may have more in them than is known here: clients send
what other proxies understand. Numbers out of range mean the default or the limit.
"""

from typing import Annotated, Final, Literal

import msgspec

from headrace.core.ids import TopicPartition
from headrace.web.record_formats import Offset, PartitionNumber

Flag = Literal["true", "false"] | bool
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249, pattern="^[^/]+$")]
Number = int | str | None

WAIT_MS_MAX: Final = 600_000
RESPONSE_BYTES: Final = 1024 * 1024
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024


class NewInstance(
    msgspec.Struct,
    rename={
        "auto_offset_reset": "auto.offset.reset",
        "auto_commit_enable": "auto.commit.enable",
        "fetch_min_bytes": "fetch.min.bytes",
        "response_min_bytes": "responseMinBytes",
        "consumer_request_timeout_ms": "consumer.request.timeout.ms",
        "request_wait_ms": "requestWaitMs",
    },
):
    """A consumer instance to create. Numbers and flags may be strings, as in REST Proxy.

    What has two names there has them here; `id` is the older one of `name`, and wins.
    """

    id: Name | None = None
    name: Name | None = None
    format: str | None = None
    auto_offset_reset: str | None = None
    auto_commit_enable: Flag | None = None
    fetch_min_bytes: Number = None
    response_min_bytes: Number = None
    consumer_request_timeout_ms: Number = None
    request_wait_ms: Number = None


class InstanceMade(msgspec.Struct):
    """Its name, and the address of its routes."""

    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Topics by name, or by a pattern (RE2 syntax)."""

    topics: list[str] | None = None
    topic_pattern: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class SubscriptionOut(msgspec.Struct):
    """The topics that an instance is subscribed to; of a pattern, those that match now."""

    topics: list[str]


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


class OffsetsToCommit(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets of some partitions; without any, of everything that was read."""

    offsets: list[PartitionOffset] | None = None


class RecordsQuery(msgspec.Struct, frozen=True):
    """How long to wait for records, and how much to return."""

    timeout: Annotated[
        int,
        msgspec.Meta(
            description="Milliseconds to wait for the first record; 0 or less: "
            "consumer.request.timeout.ms of the instance."
        ),
    ] = -1
    max_bytes: Annotated[
        int,
        msgspec.Meta(
            description="Bytes of keys and values at most, but one record at least; 0 or less: "
            "1 MiB. At most 64 MiB."
        ),
    ] = -1

    def bytes_at_most(self) -> int:
        return RESPONSE_BYTES if self.max_bytes <= 0 else min(self.max_bytes, RESPONSE_BYTES_MAX)

    def wait_ms(self, otherwise: int) -> int:
        return otherwise if self.timeout <= 0 else min(self.timeout, WAIT_MS_MAX)
