"""The records of a consumer instance on their way to its client."""

import asyncio

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import Record
from headrace.web import media
from headrace.web.call import ClientDisconnected, HttpCall
from headrace.web.errors import HttpError
from headrace.web.instances import Instance, Records
from headrace.web.record_formats import is_json, record_texts

SLICE_RECORDS = 300
# For what lies ready, where nothing more is waited for.
LINGER_MS = 5


class _ResponseFull(Exception):
    """The next record is for the next answer, so there is nothing to wait for."""


class RecordsResponse:
    """What is polled, written in pieces as it comes, until time is up or the answer is full."""

    def __init__(self, call: HttpCall, instance: Instance, max_bytes: int) -> None:
        self._call = call
        self._instance = instance
        self._bytes_max = max_bytes
        self._formats = media.FORMATS[instance.media]
        self._needs_json = instance.media == media.KAFKA_JSON
        self._bytes = 0
        self._count = 0
        self._count_before = 0
        self._is_full = False
        self._separator = b"["

    async def run(self, wait_ms: float) -> None:
        """Wait so long for the first record, and for more as long as the instance says."""
        now = asyncio.get_running_loop().time
        until = now() + min(wait_ms, self._instance.request_timeout_ms) / 1000
        found = await self._poll(wait_ms)
        headers = [(b"content-type", self._call.media.encode())]
        await self._call.send({"type": "http.response.start", "status": 200, "headers": headers})
        until = max(until, now() + LINGER_MS / 1000)
        while found:
            for where, records in found.items():
                await self._write(where, records)
            left_ms = (until - now()) * 1000
            if self._is_full or left_ms <= 0:
                break
            if self._bytes >= self._instance.min_bytes:
                left_ms = min(left_ms, LINGER_MS)
            try:
                found = await self._poll(left_ms)
            except (_ResponseFull, HeadraceError):
                break  # the next request meets it again, and can be told
        end = b"[]" if self._separator == b"[" else b"]"
        await self._send(end)
        # Whoever went while this waited for room in the connection; once the answer is complete,
        # it could no longer be told from one who has it all.
        await asyncio.sleep(0)
        if self._call.is_gone:
            raise ClientDisconnected
        await self._send(b"", more=False)
        self._instance.mark_delivered()

    async def _poll(self, wait_ms: float) -> Records:
        self._count_before = self._count
        return await self._instance.poll(wait_ms, SLICE_RECORDS, self._wants)

    def _wants(self, where: TopicPartition, record: Record) -> bool:
        if self._is_full or not self._fits(where, record):
            if self._count == self._count_before:
                raise _ResponseFull
            self._is_full = True
            return False
        self._count += 1
        return True

    def _fits(self, where: TopicPartition, record: Record) -> bool:
        value = record.value
        total = self._bytes + len(value or b"") + len(record.key or b"")
        if self._count and total > self._bytes_max:
            return False
        if self._needs_json and value is not None and not is_json(value):
            if not self._count:
                raise _not_json(where, record.offset)
            return False
        self._bytes = total
        return True

    async def _write(self, where: TopicPartition, records: list[Record]) -> None:
        async with self._call.state.loop_slices:
            texts = record_texts(where.topic, where.partition, records, self._formats)
            piece = self._separator + b",".join(texts)
        self._separator = b","
        await self._send(piece)

    async def _send(self, body: bytes, *, more: bool = True) -> None:
        await self._call.send({"type": "http.response.body", "body": body, "more_body": more})


def _not_json(where: TopicPartition, offset: int) -> HttpError:
    return HttpError(
        422,
        f"value deserialization error for format json: {where.topic}-{where.partition} holds no "
        f"JSON at offset {offset}",
        hint=f"POST offset {offset + 1} to \u2026/positions to go on behind it, or read with an "
        "instance of the format binary or text",
    )
