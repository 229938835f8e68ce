"""Read a partition by offset or time, without a consumer instance."""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from headrace.core.errors import ErrorCode, HeadraceError
from headrace.gateway import ReadResult
from headrace.protocol.records.decode import Record
from headrace.web import media
from headrace.web.call import HttpCall, while_connected
from headrace.web.errors import HttpError, no_partition
from headrace.web.operations import Operations
from headrace.web.record_formats import Offset, RecordOut, Timestamp, record_texts

READ = Operations("read")

# Bytes of records taken from the log at a time, and records written at a time: a piece of work
# must be over in a millisecond or two.
SLICE_BYTES = 32 * 1024
SLICE_RECORDS = 400
_READ_RECORDS = 10_000


class ReadQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where to begin (the beginning, if nothing is said) and when to stop."""

    offset: Offset | None = None
    timestamp: Timestamp | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="Records at most.")] = 500
    max_bytes: Annotated[
        int,
        msgspec.Meta(
            ge=1,
            le=64 * 1024 * 1024,
            description="Bytes of keys and values at most, but one record at least.",
        ),
    ] = 1024 * 1024
    timeout: Annotated[
        int,
        msgspec.Meta(ge=0, le=60_000, description="Milliseconds to wait if there is nothing yet."),
    ] = 0


@READ.get(
    "/topics/{topic}/partitions/{partition}/records",
    "Read a partition from an offset or a time on. Go on behind the last record; where the answer "
    "came in one piece, the header Headrace-Next-Offset says the same.",
    query=ReadQuery,
    response=list[RecordOut],
    produces=(*media.RECORDS, media.NDJSON),
    errors=(404, 416, 422),
    is_raw=True,
)
async def read_partition(call: HttpCall) -> None:
    query: ReadQuery = call.query
    if query.offset is not None and query.timestamp is not None:
        raise HttpError(422, "give an offset or a timestamp, not both")
    await _RecordsResponse(call, query).run()


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")


class _RecordsResponse:
    """Writes records as they are read, in small pieces, at the pace of the client."""

    def __init__(self, call: HttpCall, query: ReadQuery) -> None:
        self._call = call
        self._query = query
        self._topic = call.path["topic"]
        self._partition = call.number("partition")
        self._left_count = query.count
        self._left_bytes = query.max_bytes
        self._lines = call.media == media.NDJSON
        self._formats = media.FORMATS[call.media]
        self._is_first = True
        self._is_full = False

    async def run(self) -> None:
        query = self._query
        result = await self._first(query)
        # Where the first look has seen the end: later records are for the next request.
        end = result.high_watermark
        if self._is_complete(result, end):
            # Most answers: small enough to be sent in one go.
            body = b"".join([piece async for piece in self._chunks(result)])
            body = body if self._lines else b"[%b]" % body
            length = (b"content-length", b"%d" % len(body))
            await self._start(result, length, (b"headrace-next-offset", b"%d" % result.next_offset))
            await self._send(body, more=False)
            return
        await while_connected(self._call, self._stream(result, end))

    async def _stream(self, result: ReadResult, end: int) -> None:
        await self._start(result)
        await self._send(b"" if self._lines else b"[")
        is_over = False
        while True:
            async for piece in self._chunks(result):
                await self._send(piece)
            if is_over:
                break
            result = await self._read(result.next_offset, None, 0)
            is_over = self._is_complete(result, end)
        await self._send(b"" if self._lines else b"]", more=False)

    async def _first(self, query: ReadQuery) -> ReadResult:
        reading = self._read(query.offset, query.timestamp, query.timeout)
        try:
            if query.timeout:
                return await while_connected(self._call, reading)
            return await reading
        except HeadraceError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                count = await self._call.gateway.partitions(self._topic)
                raise no_partition(self._topic, self._partition, count) from error
            raise

    async def _read(self, offset: int | None, timestamp_ms: int | None, wait_ms: int) -> ReadResult:
        result = await self._call.gateway.read(
            self._topic,
            self._partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            max_bytes=min(SLICE_BYTES, self._left_bytes),
            max_records=min(self._left_count, _READ_RECORDS),
            wait_ms=wait_ms,
        )
        return self._within_limits(result)

    def _within_limits(self, result: ReadResult) -> ReadResult:
        """Records as long as they fit; the very first is given whatever its size."""
        records = result.records
        for at, record in enumerate(records):
            if self._left_bytes < _size(record) and (at or not self._is_first):
                self._is_full = True
                return result._replace(records=records[:at], next_offset=record.offset)
            self._left_bytes -= _size(record)
        return result

    def _is_complete(self, result: ReadResult, end: int) -> bool:
        """Whether nothing is to be read after this."""
        return (
            not result.records
            or self._is_full
            or self._left_bytes <= 0
            or result.next_offset >= end
            or len(result.records) >= self._left_count
        )

    async def _chunks(self, result: ReadResult) -> AsyncIterator[bytes]:
        for at in range(0, len(result.records), SLICE_RECORDS):
            part = result.records[at : at + SLICE_RECORDS]
            async with self._call.state.loop_slices:
                texts = record_texts(self._topic, self._partition, part, self._formats)
                piece = (b"\n" if self._lines else b",").join(texts)
            if self._lines:
                piece += b"\n"
            elif not self._is_first:
                piece = b"," + piece
            self._is_first = False
            self._left_count -= len(part)
            yield piece

    async def _start(self, result: ReadResult, *headers: tuple[bytes, bytes]) -> None:
        told = [
            (b"content-type", self._call.media.encode()),
            (b"headrace-high-watermark", b"%d" % result.high_watermark),
            (b"headrace-log-start-offset", b"%d" % result.log_start_offset),
            *headers,
        ]
        await self._call.send({"type": "http.response.start", "status": 200, "headers": told})

    async def _send(self, body: bytes, *, more: bool = True) -> None:
        await self._call.send({"type": "http.response.body", "body": body, "more_body": more})
