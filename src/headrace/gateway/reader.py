"""Reading: a partition from an offset or time, and streams that follow partitions live."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from headrace.client.aio.client import AsyncClient
from headrace.client.aio.reader import AsyncReader
from headrace.client.core.errors import error_for
from headrace.client.core.fetched import whole_batches
from headrace.client.core.lookups import STALE_METADATA, partition_error
from headrace.client.core.models import EARLIEST, LATEST, FetchedChunk, OffsetSpec, at_time
from headrace.client.core.settings import ReaderSettings
from headrace.core.errors import ErrorCode, HeadraceError, OffsetOutOfRange
from headrace.core.ids import NO_TOPIC_ID, NodeId, TopicPartition
from headrace.gateway.partial_batches import PartialBatchCache
from headrace.gateway.topics import Topics
from headrace.gateway.values import ReadResult
from headrace.network.send_request import SendRequest
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.records.decode import Record

_LAST_VERSION_BY_NAME: Final = 12
_READ_COMMITTED: Final = 1
_READ_TRIES_MS: Final = 10_000
# An idle stream asks this often; each time costs the broker some 50 microseconds.
STREAM_WAIT_MS: Final = 30_000
_STREAM_BYTES: Final = 256 * 1024
_STREAM_RECORDS: Final = 500


class GatewayReader:
    """The gateway's reading half."""

    def __init__(self, client: AsyncClient, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._partial_batches = PartialBatchCache()
        # Connections of their own for fetches: what is shared must not wait behind a long poll.
        self._idle_channels: list[int] = []

    async def read(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        max_bytes: int,
        max_records: int,
        wait_ms: int,
    ) -> ReadResult:
        """Records from an offset, a time or the start on."""
        where = TopicPartition(topic, partition)
        await self.check(where)
        if offset is None:
            spec = EARLIEST if timestamp_ms is None else at_time(timestamp_ms)
            offset = await self.offset_of(where, spec)
        position = offset
        while True:
            data = await self._fetch(where, position, max_bytes, wait_ms)
            batches, last = whole_batches(data.records or b"")
            records: list[Record] = []
            if last is not None:
                chunk = _chunk(where, position, batches, data)
                records, position = await self._partial_batches.decode(
                    chunk, position, last, max_records
                )
            # Batches of markers alone hold nothing to show, but there may be more behind them.
            if records or last is None or max_records <= 0:
                return ReadResult(records, position, data.last_stable_offset, data.log_start_offset)

    async def check(self, where: TopicPartition) -> None:
        """Raise unless the partition exists."""
        topic, partition = where
        state = self._topics.known(topic) or await self._topics.find(topic, create=False)
        count = len(state.partitions)
        if not 0 <= partition < count:
            # It may have grown since we looked.
            self._topics.forget(topic)
            count = len((await self._topics.find(topic, create=False)).partitions)
            if not 0 <= partition < count:
                raise partition_error(topic, partition, count)

    async def _fetch(
        self, where: TopicPartition, offset: int, max_bytes: int, wait_ms: int
    ) -> PartitionData:
        """One fetch that worked; leaders that moved are looked for until time is up."""
        timeout_ms = min(_READ_TRIES_MS, self._client.settings.call_timeout_ms)
        deadline_ms = self._client.requests.now_ms() + timeout_ms
        failures = 0
        while True:
            try:
                return await self._fetch_once(where, offset, max_bytes, wait_ms)
            except HeadraceError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise await self._out_of_range(where, offset) from error
                if error.code in STALE_METADATA:
                    self._topics.forget(where.topic)
                failures += 1
                delay_ms = self._client.requests.session.backoff.delay_ms(failures)
                if not error.retriable or self._client.requests.now_ms() + delay_ms >= deadline_ms:
                    raise
                await asyncio.sleep(delay_ms / 1000)
                await self.check(where)

    async def _fetch_once(
        self, where: TopicPartition, offset: int, max_bytes: int, wait_ms: int
    ) -> PartitionData:
        cluster = self._client.requests.session.cluster
        node = cluster.leader(where)
        if node is None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, None, f"partition {where}")
        topic_id = cluster.topic_id(where.topic)
        part = FetchPartition(
            partition=where.partition,
            current_leader_epoch=cluster.leader_epoch(where),
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=_READ_COMMITTED,
            topics=[FetchTopic(topic=where.topic, topic_id=topic_id, partitions=[part])],
        )
        response = await self._send_fetch(
            node, request, wait_ms, 1000 if topic_id != NO_TOPIC_ID else _LAST_VERSION_BY_NAME
        )
        if response.error_code:
            raise error_for(response.error_code, None, f"fetch of {where}")
        data = response.responses[0].partitions[0]
        if data.error_code:
            raise error_for(data.error_code, None, f"fetch of {where}")
        return data

    async def _send_fetch(
        self, node: NodeId, request: FetchRequest, wait_ms: int, version_max: int
    ) -> FetchResponse:
        channel = (
            self._idle_channels.pop()
            if self._idle_channels
            else self._client.requests.new_channel()
        )
        ask = SendRequest(
            node,
            request,
            FetchResponse,
            self._client.settings.request_timeout_ms + wait_ms,
            version_max=version_max,
            channel=channel,
        )
        try:
            response = await self._client.requests.submit(ask)
        except BaseException:
            # An answer may still come there: nobody else must wait behind it.
            await self._client.requests.close_channel(channel)
            raise
        self._idle_channels.append(channel)
        assert isinstance(response, FetchResponse)
        return response

    async def _out_of_range(self, where: TopicPartition, offset: int) -> OffsetOutOfRange:
        first = await self.offset_of(where, EARLIEST)
        end = await self.offset_of(where, LATEST)
        error = OffsetOutOfRange(
            f"{where} has no offset {offset}: it holds {first} to {end - 1}"
            if first < end
            else f"{where} has no offset {offset}: it is empty, the next offset is {end}"
        )
        error.hint = f"read from {first} (the first) or {end} (the next to come)"
        return error

    async def offset_of(self, where: TopicPartition, spec: OffsetSpec) -> int:
        """The offset of a place by meaning; a time after the last record is the end."""
        return (await self.offsets_of({where: spec}))[where]

    async def offsets_of(
        self, places: Mapping[TopicPartition, OffsetSpec]
    ) -> dict[TopicPartition, int]:
        """The same for many at once."""
        list_offsets = self._client.admin.list_offsets
        found = await list_offsets(places, read_committed=True) if places else {}
        late = {where: LATEST for where, listed in found.items() if listed.offset < 0}
        if late:
            found |= await list_offsets(late, read_committed=True)
        return {where: found[where].offset for where in places}

    def stream(self, positions: Mapping[TopicPartition, int | OffsetSpec]) -> "RecordStream":
        settings = ReaderSettings(
            isolation="read_committed",
            fetch_wait_ms_max=STREAM_WAIT_MS,
            partition_bytes_max=_STREAM_BYTES,
            prefetch_bytes=0,
        )
        return RecordStream(self._client.reader(positions, settings))


def _chunk(
    where: TopicPartition, position: int, batches: memoryview, data: PartitionData
) -> FetchedChunk:
    return FetchedChunk(
        where,
        position,
        batches,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()],
    )


class RecordStream:
    """A live stream of some partitions; what is fetched ahead is bounded."""

    def __init__(self, reader: AsyncReader) -> None:
        self._reader = reader

    async def __aenter__(self) -> "RecordStream":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> "RecordStream":
        return self

    async def __anext__(self) -> dict[TopicPartition, list[Record]]:
        """The next records, as long as it takes."""
        while True:
            found = await self.poll(STREAM_WAIT_MS)
            if found:
                return found

    async def poll(
        self, timeout_ms: float, max_records: int = _STREAM_RECORDS
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition; empty when none came in time."""
        return await self._reader.poll(timeout_ms, max_records)

    async def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of every partition."""
        return {
            partition: await self._reader.position(partition)
            for partition in self._reader.assignment
        }

    def high_watermark(self, partition: TopicPartition) -> int:
        """The end as of the last fetch; -1 before the first."""
        return self._reader.high_watermark(partition)

    async def close(self) -> None:
        await self._reader.close()
