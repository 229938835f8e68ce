"""The gateway: everything HTTP and text may ask for, by topic or group."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import TracebackType

from headrace.client.aio.admin import AsyncAdmin
from headrace.client.aio.client import AsyncClient
from headrace.client.core.group_models import CommittedOffset, PartitionLag
from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec
from headrace.core.ids import TopicPartition
from headrace.gateway.group_offsets import GroupOffsets
from headrace.gateway.idempotency_keys import IdempotencyKeys
from headrace.gateway.members import GatewayMember, MemberSettings
from headrace.gateway.producer import GatewayProducer
from headrace.gateway.reader import GatewayReader, RecordStream
from headrace.gateway.topics import Topics
from headrace.gateway.values import GatewayLimits, OutRecord, Produced, ReadResult

_READ_BYTES = 1024 * 1024
_READ_RECORDS = 10_000


class Gateway:
    """One listener's way to the cluster; closes its client with itself."""

    def __init__(self, client: AsyncClient, *, limits: GatewayLimits | None = None) -> None:
        self.client = client
        self.limits = limits or GatewayLimits()
        self._topics = Topics(client, self.limits.lookup_ms)
        self._reader = GatewayReader(client, self._topics)
        idempotency_keys = IdempotencyKeys(client, self._topics, self._reader, self.limits)
        self._group_offsets = GroupOffsets(client, self._reader)
        self._producer = GatewayProducer(client, self._topics, idempotency_keys, self.limits)

    async def __aenter__(self) -> "Gateway":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @cached_property
    def admin(self) -> AsyncAdmin:
        """Topics, configs, groups and what lies on disk."""
        return self.client.admin

    async def partitions(self, topic: str, *, create: bool = False) -> int:
        """How many partitions the topic has; with `create` it may be auto-created."""
        return len((await self._topics.find(topic, create=create)).partitions)

    async def produce(
        self,
        topic: str,
        records: Sequence[OutRecord],
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
        key: str | None = None,
    ) -> list[Produced]:
        """Write records and say of each where it went or why it did not, in their order.

        `timeout_ms` None means the limit of this gateway.
        `key` is an idempotency key: the same request sent again, also after a crash, is answered
        with the offsets of the first. Raises where nothing can be tried at all.
        """
        limit_ms = self.limits.produce_ms if timeout_ms is None else timeout_ms
        return await self._producer.produce(topic, records, acks, limit_ms, key)

    async def read(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        max_bytes: int = _READ_BYTES,
        max_records: int = _READ_RECORDS,
        wait_ms: int = 0,
    ) -> ReadResult:
        """Records from an offset, or a time, or the start on; waits up to `wait_ms` for the first.

        `max_bytes` bounds what is read, but one batch is always read whole.
        """
        return await self._reader.read(
            topic,
            partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            max_bytes=max_bytes,
            max_records=max_records,
            wait_ms=wait_ms,
        )

    async def offset_of(self, partition: TopicPartition, spec: OffsetSpec) -> int:
        """The offset of an end or a time; a time after the last record is the end."""
        return await self._reader.offset_of(partition, spec)

    async def offsets_of(
        self, positions: Mapping[TopicPartition, int | OffsetSpec]
    ) -> dict[TopicPartition, int]:
        """Offsets of many places; those that are offsets already stay as they are."""
        specs = {
            where: place for where, place in positions.items() if isinstance(place, OffsetSpec)
        }
        found = await self._reader.offsets_of(specs)
        return {
            where: place if isinstance(place, int) else found[where]
            for where, place in positions.items()
        }

    def stream(self, positions: Mapping[TopicPartition, int | OffsetSpec]) -> RecordStream:
        """A live stream of these partitions, each from an offset, an end or a time."""
        return self._reader.stream(positions)

    async def join(
        self,
        group: str,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
        settings: MemberSettings | None = None,
        on_revoked: Callable[[list[TopicPartition]], None] | None = None,
    ) -> GatewayMember:
        """Become a member that reads these topics, or all whose names match `pattern`.

        With neither, the member waits for its `subscribe` or `assign`. Partitions come later:
        see `GatewayMember.assignment`; `on_revoked` is called when some go, even if they soon come
        back.
        """
        wanted = settings or MemberSettings()
        member = GatewayMember(self.client.consumer(wanted.consumer(group)), on_revoked=on_revoked)
        if topics or pattern is not None:
            await member.subscribe(topics, pattern=pattern)
        return member

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit offsets of a group from outside; refused while it has members."""
        await self._group_offsets.commit(group, offsets)

    async def offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed (default: everywhere); others are left out."""
        return await self._group_offsets.offsets(group, partitions)

    async def reset(
        self, group: str, positions: Mapping[TopicPartition, int | OffsetSpec]
    ) -> dict[TopicPartition, int]:
        """Move a group without members to offsets, ends or times; returns the offsets chosen.

        An offset that a partition does not hold becomes the nearest of its ends.
        """
        chosen = await self._clamp(await self.offsets_of(positions))
        await self._group_offsets.commit(group, chosen)
        return chosen

    async def _clamp(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        firsts = await self.offsets_of(dict.fromkeys(offsets, EARLIEST))
        ends = await self.offsets_of(dict.fromkeys(offsets, LATEST))
        return {
            where: min(max(offset, firsts[where]), ends[where]) for where, offset in offsets.items()
        }

    async def lag(self, group: str) -> list[PartitionLag]:
        """How far behind a group is, partition by partition."""
        return list(await self.admin.group_lag(group))

    async def close(self) -> None:
        """Close the client with everything made from it."""
        await self.client.close()
