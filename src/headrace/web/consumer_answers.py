"""The records of a consumer instance on their way to its client."""

import asyncio

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import Record
from headrace.web import media
from headrace.web.bodies import ClientGone
from headrace.web.instances import Instance
from headrace.web.operations import Call
from headrace.web.record_formats import record_texts

SLICE_RECORDS = 300
# An answer that has records waits so long for the fetch of more.
LINGER_MS = 5


class RecordsAnswer:
    """What was polled, written in pieces; goes on without waiting while there is more and room."""

    def __init__(self, call: Call, instance: Instance, max_bytes: int) -> None:
        self._call = call
        self._instance = instance
        self._left = max_bytes
        self._formats = media.FORMATS[call.media]
        self._separator = b"["

    async def run(self, wait_ms: float) -> None:
        found = await self._instance.poll(wait_ms, SLICE_RECORDS)
        headers = [(b"content-type", self._call.media.encode())]
        await self._call.send({"type": "http.response.start", "status": 200, "headers": headers})
        while found:
            for where, records in found.items():
                await self._write(where, records)
            if self._left <= 0:
                break
            try:
                found = await self._instance.poll(LINGER_MS, SLICE_RECORDS)
            except HeadraceError:
                break  # the next request meets it again, and can be told
        end = b"[]" if self._separator == b"[" else b"]"
        await self._send(end)
        # Whoever went while this waited for room in the connection; once the answer is complete,
        # it could no longer be told from one who has it all.
        await asyncio.sleep(0)
        if self._call.is_gone:
            raise ClientGone
        await self._send(b"", more=False)
        self._instance.delivered()

    async def _write(self, where: TopicPartition, records: list[Record]) -> None:
        async with self._call.door.turns:
            texts = record_texts(where.topic, where.partition, records, self._formats)
            piece = self._separator + b",".join(texts)
        self._separator = b","
        self._left -= sum(len(each.value or b"") + len(each.key or b"") for each in records)
        await self._send(piece)

    async def _send(self, body: bytes, *, more: bool = True) -> None:
        await self._call.send({"type": "http.response.body", "body": body, "more_body": more})
