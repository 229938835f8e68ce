"""One connection that sends exactly the requests a test makes up, and decodes the answers."""

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from headrace.protocol.api_keys import response_class
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.message import Message

M = TypeVar("M", bound=Message)

TIMEOUT_SECONDS = 20


class RawClient:
    """No negotiation, no retries: what a test sends is what the broker sees."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._correlation_id = 0
        self._client_id = "raw"

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def send(self, request: Message, version: int) -> int:
        """Send without waiting; the correlation id of the request."""
        self._correlation_id += 1
        self._writer.write(encode_request(request, version, self._correlation_id, self._client_id))
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive_frame(self) -> bytes:
        """The next answer without its length; `IncompleteReadError` once the broker hung up."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def receive(self, answer_class: type[M], version: int) -> tuple[int, M]:
        return decode_response(answer_class, await self.receive_frame(), version)

    async def call_as(self, client_id: str, request: Message, version: int) -> Message:
        """`call` under another client id."""
        self._client_id = client_id
        try:
            return await self.call(request, version)
        finally:
            self._client_id = "raw"

    async def call(self, request: Message, version: int) -> Message:
        """One request and its answer."""
        sent = self.send(request, version)
        assert request.schema.api_key is not None
        answer_class = response_class(request.schema.api_key)
        received, answer = await self.receive(answer_class, version)
        assert received == sent
        return answer

    async def is_closed_by_broker(self) -> bool:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self._reader.read(1) == b""
            except ConnectionResetError:
                return True
