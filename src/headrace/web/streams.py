"""Live streams of a topic: server-sent events for browsers, lines of JSON for everybody else.

Every event's id holds the next offset of every partition, `0:17,1:4`, so a client that comes
back with it (`Last-Event-ID`) goes on exactly behind the last record it saw, in all partitions.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated

import msgspec

from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec, at_time
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.gateway import RecordStream
from headrace.protocol.records.decode import Record
from headrace.web import media
from headrace.web.call import INT32_MAX, ClientDisconnected, HttpCall, while_connected
from headrace.web.errors import OFFSET_OUT_OF_RANGE, HttpError, http_error_of, no_partition
from headrace.web.operations import Operations
from headrace.web.record_formats import Offset, PartitionNumber, Timestamp, record_texts

STREAMS = Operations("streams")

SLICE_RECORDS = 300
_OFFSET_MAX = 2**63 - 1
_RETRY = b"retry: 1000\n"

_encode = msgspec.json.Encoder().encode


class StreamQuery(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"from_": "from"}
):
    """Where to begin: an end, a time, an offset of one partition, or the id of an event."""

    from_: Annotated[
        str,
        msgspec.Meta(
            description="beginning, end, or the id of an event, such as 0:17,1:4",
            max_length=64 * 1024,
        ),
    ] = "end"
    partition: PartitionNumber | None = None
    offset: Offset | None = None
    timestamp: Timestamp | None = None


@STREAMS.get(
    "/topics/{topic}/stream",
    "Follow a topic, or one partition of it, live.",
    query=StreamQuery,
    response=str,
    produces=(media.EVENTS, media.NDJSON),
    errors=(404, 416, 422, 429),
    headers=("Last-Event-ID",),
    is_raw=True,
)
async def stream_topic(call: HttpCall) -> None:
    with call.state.stream_limit:
        starts = await _starts(call)
        await _check_offsets(call, starts)
        stream = _RecordEvents(call, starts)
        try:
            await while_connected(call, stream.run())
        except ClientDisconnected:
            if call.state.is_stopping:
                await stream.end()
            raise


async def _starts(call: HttpCall) -> dict[TopicPartition, int | OffsetSpec]:
    """Every partition to be followed, with the place where it begins."""
    query: StreamQuery = call.query
    topic = call.path["topic"]
    count = await call.gateway.partitions(topic)
    if query.partition is not None and query.partition >= count:
        raise no_partition(topic, query.partition, count)
    chosen = range(count) if query.partition is None else (query.partition,)
    given = call.header(b"last-event-id")
    start = parse_id(given.decode("latin-1")) if given else _start(query)
    if not isinstance(start, dict):
        return {TopicPartition(topic, number): start for number in chosen}
    # A partition that the id does not know has come into being since.
    return {TopicPartition(topic, number): start.get(number, EARLIEST) for number in chosen}


async def _check_offsets(call: HttpCall, starts: Mapping[TopicPartition, int | OffsetSpec]) -> None:
    """Refuse offsets that are not there before the stream begins, while it can be told."""
    given = {where: start for where, start in starts.items() if isinstance(start, int)}
    admin = call.gateway.admin
    firsts = await admin.list_offsets(dict.fromkeys(given, EARLIEST)) if given else {}
    ends = await admin.list_offsets(dict.fromkeys(given, LATEST)) if given else {}
    for where, start in given.items():
        first, end = firsts[where].offset, ends[where].offset
        if not first <= start <= end:
            raise HttpError(
                OFFSET_OUT_OF_RANGE,
                f"{where} has no offset {start}",
                hint=f"begin at {first} (the first) or {end} (the next to come)",
                kafka_error=ErrorCode.OFFSET_OUT_OF_RANGE.name,
            )


def _start(query: StreamQuery) -> OffsetSpec | int | dict[int, int]:
    if query.offset is not None and query.timestamp is not None:
        raise HttpError(422, "give an offset or a timestamp, not both")
    if query.offset is not None:
        if query.partition is None:
            hint = "add partition=…, or use from=0:17,1:4 for many partitions"
            raise HttpError(422, "an offset needs a partition", hint=hint)
        return query.offset
    if query.timestamp is not None:
        return at_time(query.timestamp)
    if query.from_ == "beginning":
        return EARLIEST
    if query.from_ == "end":
        return LATEST
    return parse_id(query.from_)


def parse_id(text: str) -> dict[int, int]:
    """Next offsets by partition from the id of an event."""
    positions = {}
    for pair in text.strip().split(","):
        partition, colon, offset = pair.partition(":")
        numbers = (partition, offset)
        if not colon or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise HttpError(
                422,
                f"{text[:60]!r} is not the id of an event",
                hint="an id is partition:offset, separated by commas, such as 0:17,1:4",
            )
        if int(partition[:11]) > INT32_MAX or int(offset[:20]) > _OFFSET_MAX:
            raise HttpError(422, f"{pair[:60]!r} is out of range")
        positions[int(partition)] = int(offset)
    return positions


class EventIds:
    """The id of the event at hand: only the part of its partition is written anew."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        order = sorted(positions)
        self._indexes = {partition: at for at, partition in enumerate(order)}
        self._parts = [b"%d:%d" % (partition, positions[partition]) for partition in order]

    def after(self, partition: int, offset: int) -> bytes:
        """The id once the record at `offset` has been seen."""
        self._parts[self._indexes[partition]] = b"%d:%d" % (partition, offset + 1)
        return b",".join(self._parts)

    def now(self) -> bytes:
        return b",".join(self._parts)


async def _ids(stream: RecordStream) -> EventIds:
    positions = await stream.positions()
    return EventIds({where.partition: offset for where, offset in positions.items()})


class _RecordEvents:
    """One client that follows one topic."""

    def __init__(self, call: HttpCall, starts: Mapping[TopicPartition, int | OffsetSpec]) -> None:
        self._call = call
        self._topic = call.path["topic"]
        self._starts = dict(starts)
        self._is_events = call.media == media.EVENTS
        self._formats = media.FORMATS[call.media]
        self._ids: EventIds | None = None
        self._ping_ms = call.state.settings.stream_ping_ms
        self._growth_seconds = call.state.settings.stream_growth_ms / 1000

    async def run(self) -> None:
        stream = self._call.gateway.stream(self._starts)
        try:
            await self._start(await _ids(stream))
            while True:
                positions = await self._pump(stream)
                if positions is None:
                    return
                await stream.close()
                self._starts = positions
                stream = self._call.gateway.stream(positions)
                self._ids = await _ids(stream)
        finally:
            await stream.close()

    async def _start(self, ids: EventIds) -> None:
        self._ids = ids
        headers = [
            (b"content-type", self._call.media.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._call.send({"type": "http.response.start", "status": 200, "headers": headers})
        # An id without data: whoever loses the connection before the first record knows it, too.
        await self._send(_RETRY + b"id: %b\n\n" % ids.now() if self._is_events else b"")

    async def _pump(self, stream: RecordStream) -> dict[TopicPartition, int | OffsetSpec] | None:
        """Send what comes, until the topic has new partitions: then, where to go on in all."""
        loop = asyncio.get_running_loop()
        look_at = loop.time() + self._growth_seconds
        try:
            while True:
                found = await stream.poll(self._ping_ms, SLICE_RECORDS)
                for where, records in found.items():
                    async with self._call.state.loop_slices:
                        text = self._text(where.partition, records)
                    await self._send(text)
                if not found:
                    await self._send(b": ping\n\n" if self._is_events else b"\n")
                if loop.time() > look_at:
                    look_at = loop.time() + self._growth_seconds
                    added = await self._added()
                    if added:
                        return {**await stream.positions(), **added}
        except HeadraceError as error:
            await self._send(self._error_event(error))
            await self.end()
            return None

    async def _added(self) -> dict[TopicPartition, OffsetSpec]:
        if self._call.query.partition is not None:
            return {}
        described = await self._call.gateway.admin.describe_topics([self._topic])
        count = len(described[self._topic].partitions)
        every = (TopicPartition(self._topic, number) for number in range(count))
        return {where: EARLIEST for where in every if where not in self._starts}

    def _text(self, partition: int, records: list[Record]) -> bytes:
        texts = record_texts(self._topic, partition, records, self._formats)
        if not self._is_events:
            return b"\n".join(texts) + b"\n"
        assert self._ids is not None
        after = self._ids.after
        return b"".join(
            b"id: %b\ndata: %b\n\n" % (after(partition, record.offset), text)
            for record, text in zip(records, texts, strict=True)
        )

    def _error_event(self, error: HeadraceError) -> bytes:
        body = _encode(http_error_of(error).body())
        return b"event: error\ndata: %b\n\n" % body if self._is_events else body + b"\n"

    async def end(self) -> None:
        """Finish the answer, so that the client sees an end and not a fault."""
        if self._ids is not None:
            await self._send(b"", more=False)

    async def _send(self, body: bytes, *, more: bool = True) -> None:
        if body or not more:
            await self._call.send({"type": "http.response.body", "body": body, "more_body": more})
