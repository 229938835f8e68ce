"""Records as a stream of lines (NDJSON), appended in batches as they come in.

Memory is bounded by one batch and the longest line, whatever the length of the stream. A bad
line fails alone. The answer is a summary, or one line for each record if the client accepts
`application/x-ndjson`.
"""

from collections.abc import Iterator, Sequence

import msgspec

from headrace.core.errors import HeadraceError
from headrace.gateway import OutRecord
from headrace.web import bodies, media
from headrace.web.call import ClientDisconnected, HttpCall
from headrace.web.errors import (
    PARTITION_NOT_FOUND,
    TOPIC_NOT_FOUND,
    ErrorBody,
    HttpError,
    http_error_of,
)
from headrace.web.record_formats import RecordIn, out_records
from headrace.web.route_handler import send_response

BATCH_BYTES = 64 * 1024
SLICE_LINES = 1000
ERRORS_SHOWN_MAX = 100

_decoder = msgspec.json.Decoder(RecordIn)
_encode = msgspec.json.Encoder().encode
_FORMATS = media.FORMATS[media.NDJSON]


class LineResult(msgspec.Struct, omit_defaults=True):
    """What became of one line; lines are counted from 1."""

    line: int
    partition: int | None = None
    offset: int | None = None
    error_code: int | None = None
    error: str | None = None


class PartitionSummary(msgspec.Struct):
    """What a stream has added to one partition."""

    partition: int
    records: int
    first_offset: int
    last_offset: int


class StreamSummary(msgspec.Struct):
    """What became of a whole stream; of the errors, the first hundred."""

    lines: int
    produced: int
    failed: int
    partitions: list[PartitionSummary]
    errors: list[LineResult]
    stopped_by: ErrorBody | None = None
    """Why the rest of the stream was not read, where that is so."""


class LineSplitter:
    """Cuts chunks into batches of whole lines."""

    def __init__(self, line_bytes_max: int) -> None:
        self._rest = bytearray()
        self._line_bytes_max = line_bytes_max

    def __len__(self) -> int:
        """Bytes of the line that is not complete."""
        return len(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Whole lines, together about `BATCH_BYTES` each; what is left waits."""
        rest = self._rest
        rest += chunk
        batches = []
        while True:
            end = rest.rfind(b"\n", 0, BATCH_BYTES)
            if end < 0 and len(rest) > BATCH_BYTES:
                end = rest.find(b"\n", BATCH_BYTES)
            if end < 0:
                break
            batches.append(bytes(rest[: end + 1]))
            del rest[: end + 1]
        if len(rest) > self._line_bytes_max:
            raise bodies.too_large(self._line_bytes_max)
        return batches

    def finish(self) -> bytes:
        """The last line, if it has no end."""
        return bytes(self._rest)


def in_slices(batch: bytes) -> Iterator[bytes]:
    """The same lines, not too many at once however short they are."""
    if batch.count(b"\n") <= SLICE_LINES:
        yield batch
        return
    lines = batch.split(b"\n")
    for start in range(0, len(lines) - 1, SLICE_LINES):
        yield b"\n".join([*lines[start : min(start + SLICE_LINES, len(lines) - 1)], b""])


class _ProduceStream:
    """One stream of lines into one topic."""

    def __init__(self, call: HttpCall, partition: int | None, acks: int, timeout_ms: int) -> None:
        self._call = call
        self._topic = call.path["topic"]
        self._partition = partition
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._reports_each_line = call.media == media.NDJSON
        self._started = False
        self._line = 0
        self._produced = 0
        self._failed = 0
        self._errors: list[LineResult] = []
        self._partitions: dict[int, PartitionSummary] = {}

    async def run(self) -> None:
        lines = LineSplitter(self._call.state.settings.body_bytes_max)
        try:
            async for chunk in bodies.chunks(self._call):
                for batch in lines.feed(chunk):
                    for some in in_slices(batch):
                        await self._append(some)
                if len(lines) > BATCH_BYTES or self._call.held_bytes:
                    self._call.hold_bytes(len(lines))
            await self._append(lines.finish())
        except HeadraceError as error:
            await self._finish(http_error_of(error))
            return
        await self._finish(None)

    async def _append(self, batch: bytes) -> None:
        async with self._call.state.loop_slices:
            numbers, records, results = self._read(batch)
        if records:
            produced = await self._call.gateway.produce(
                self._topic, records, acks=self._acks, timeout_ms=self._timeout_ms
            )
            for number, (partition, offset, error) in zip(numbers, produced, strict=True):
                if error is None:
                    self._count(partition, offset)
                    results.append(LineResult(number, partition, offset))
                else:
                    told = produce_failure(error)
                    results.append(
                        LineResult(number, partition, None, told.error_code, told.message)
                    )
        await self._report(results)

    def _read(self, batch: bytes) -> tuple[list[int], list[OutRecord], list[LineResult]]:
        """The good records with the numbers of their lines, and what is wrong with the others."""
        first = self._line + 1
        texts = batch.split(b"\n")
        if not texts[-1].strip():
            texts.pop()
        self._line += len(texts)
        try:
            bodies_ok = batch.decode() is not None
            whole = _decoder.decode_lines(batch) if bodies_ok else []
            if len(whole) == len(texts):
                numbers = list(range(first, first + len(texts)))
                return numbers, out_records(whole, _FORMATS, self._partition), []
        except (msgspec.DecodeError, UnicodeDecodeError, HttpError, RecursionError):
            pass  # some line is bad: look at each by itself
        return self._read_each(first, texts)

    def _read_each(
        self, first: int, texts: Sequence[bytes]
    ) -> tuple[list[int], list[OutRecord], list[LineResult]]:
        numbers, records, results = [], [], []
        for number, text in enumerate(texts, first):
            if not text.strip():
                continue
            try:
                record = bodies.decode(_decoder, text)
                records += out_records((record,), _FORMATS, self._partition)
                numbers.append(number)
            except HttpError as error:
                message = error.message.removeprefix("record 0: ")
                results.append(LineResult(number, None, None, error.error_code, message))
        return numbers, records, results

    def _count(self, partition: int, offset: int) -> None:
        self._produced += 1
        known = self._partitions.get(partition)
        if known is None:
            self._partitions[partition] = PartitionSummary(partition, 1, offset, offset)
        else:
            known.records += 1
            known.last_offset = offset

    async def _report(self, results: list[LineResult]) -> None:
        failed = [result for result in results if result.error_code is not None]
        self._failed += len(failed)
        if not self._reports_each_line:
            left = ERRORS_SHOWN_MAX - len(self._errors)
            self._errors += failed[: max(0, left)]
            return
        if results:
            results.sort(key=lambda result: result.line)
            await self._write(b"".join(_encode(result) + b"\n" for result in results))

    async def _write(self, text: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", media.NDJSON.encode())]
            await self._call.send(
                {"type": "http.response.start", "status": 200, "headers": headers}
            )
        await self._call.send({"type": "http.response.body", "body": text, "more_body": more})

    async def _finish(self, error: HttpError | None) -> None:
        if error is not None and self._line == 0 and not self._started:
            raise error
        if self._reports_each_line:
            text = b"" if error is None else _encode(error.body()) + b"\n"
            await self._write(text, more=False)
            return
        if error is not None and not self._produced:
            raise error
        summary = StreamSummary(
            self._line,
            self._produced,
            self._failed,
            [self._partitions[number] for number in sorted(self._partitions)],
            self._errors,
            None if error is None else error.body(),
        )
        status = 200 if error is None else error.status
        await send_response(self._call, status, summary)


def produce_failure(error: HeadraceError) -> HttpError:
    """What became of a record; its topic exists, or nothing would have been tried."""
    told = http_error_of(error)
    if told.error_code == TOPIC_NOT_FOUND:
        return HttpError(PARTITION_NOT_FOUND, told.message, kafka_error=told.kafka_error)
    return told


async def produce_lines(call: HttpCall, partition: int | None, acks: int, timeout_ms: int) -> None:
    """Append every line of the body as a record."""
    try:
        await _ProduceStream(call, partition, acks, timeout_ms).run()
    except ClientDisconnected:
        return
