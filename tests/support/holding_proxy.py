"""A proxy before a broker that sees requests pass, and can keep back what the broker answers."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from headrace.protocol.api_keys import ApiKey

HOST = "127.0.0.1"


class HoldingProxy:
    """Forwards connections to a broker's port.

    `on_request` is told the API key of every request before it is forwarded, and says whether
    it goes on to the broker. After `hold` no answer comes through; `release` ends that for
    connections made from then on.
    """

    def __init__(self, broker_port: int, on_request: Callable[["HoldingProxy", int], bool]) -> None:
        self._broker_port = broker_port
        self._on_request = on_request
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._holding = False
        self.port = 0

    async def __aenter__(self) -> "HoldingProxy":
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self) -> None:
        self._holding = True

    def release(self) -> None:
        self._holding = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            broker_reader, broker_writer = await asyncio.open_connection(HOST, self._broker_port)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, broker_writer))
                both.create_task(self._answers(broker_reader, writer))
        except* (OSError, EOFError):
            pass
        finally:
            # Both before the first wait, which may be cancelled.
            for each in (writer, broker_writer):
                each.close()
            for each in (writer, broker_writer):
                with suppress(OSError):
                    await each.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(size, "big"))
            if self._on_request(self, ApiKey(int.from_bytes(body[:2], "big"))):
                writer.write(size + body)
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._holding:
                writer.write(data)
                await writer.drain()
        raise EOFError
