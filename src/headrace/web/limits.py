"""What all requests of the HTTP API share out among them: turns of the loop, streams, memory."""

import asyncio
from typing import Final

from headrace.web.errors import BODIES_FULL, RETRY_AFTER, TOO_MANY, HttpError

CLOSE: Final = (b"connection", b"close")
"""The response header that ends the connection."""


class LoopSlices:
    """One piece of work in each turn of the event loop, over all HTTP requests.

    Between two pieces the loop serves every other socket, so a Kafka request waits for at most
    one piece however many HTTP requests there are. Pieces are small by construction: some
    hundred records.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        # Whoever is next is woken by the loop, after it has looked at its sockets.
        self._lock.release()
        await asyncio.sleep(0)


class StreamLimit:
    """How many streams are open, within the listener's limit."""

    __slots__ = ("_open", "_streams_max")

    def __init__(self, streams_max: int) -> None:
        self._open = 0
        self._streams_max = streams_max

    def __len__(self) -> int:
        return self._open

    def __enter__(self) -> None:
        if self._open >= self._streams_max:
            raise HttpError(
                TOO_MANY,
                f"{self._open} streams are open, more are not served at once",
                hint="close one, or raise http.max.streams",
            )
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1


class MemoryBudget:
    """Bytes of bodies that are not complete or not worked off, over all connections."""

    __slots__ = ("_bytes_max", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def resize(self, before: int, now: int) -> None:
        """A request that held `before` bytes holds so many now, if there is room."""
        if now > before and self.used_bytes + now - before > self._bytes_max:
            raise HttpError(
                BODIES_FULL,
                "too many large bodies are on their way at once",
                hint="this may pass: send the request again",
                headers=(*RETRY_AFTER, CLOSE),
            )
        self.used_bytes += now - before
