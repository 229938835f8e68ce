"""One client of the text listener: bytes in, commands in their order, lines out.

What one client can make us hold is bounded: while too much of what it asked for waits, we stop
reading from it; while it does not read what it asked for, its commands wait. PUBLISH lines that
arrive together are handed over together, which is what makes pipelining fast.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar, cast

from headrace.gateway import Gateway
from headrace.text import responses
from headrace.text.lines import Command, ForeignProtocol, LineReader, Publish, Refusal, Request
from headrace.text.session import TextSession
from headrace.text.settings import TextSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Bytes that may wait to be read into requests, and how many are read at a time: less than a
# millisecond's work, after which others have their turn.
WAITING_BYTES_MAX: Final = 256 * 1024
SLICE_BYTES: Final = 16 * 1024
UNSENT_BYTES_MAX: Final = 256 * 1024
# Somebody who is told this often that a line is wrong will not be right the next time.
REFUSALS_MAX: Final = 50
# How long somebody who is hung up on may go on sending: were the socket closed with bytes in it
# that nobody read, the system would throw away what we said last.
LINGER_SECONDS: Final = 1.0


class TextConnectionOwner(Protocol):
    """The server as its connections see it."""

    gateway: Gateway
    settings: TextSettings
    held_bytes: int
    """Of lines and payloads that have arrived in part, over all clients."""

    def admit(self, connection: "TextConnection") -> bytes | None:
        """Take a client on, or the last line for one that is not."""
        ...

    def remove(self, connection: "TextConnection", ending: "asyncio.Task[None]") -> None:
        """A client has gone; what it began comes to its end in `ending`."""
        ...


class TextConnection(asyncio.Protocol):
    def __init__(self, server: TextConnectionOwner) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._reader = LineReader(server.settings)
        self._session = TextSession(server.gateway, self)
        self._inbox: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._requests: deque[Request] = deque()
        self._transport: asyncio.Transport | None = None
        self._worker: asyncio.Task[None] | None = None
        self._interruptible: asyncio.Task[Any] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._at_end = False
        self._is_over = False
        self._lingering: asyncio.TimerHandle | None = None
        self._refusals = 0
        self._held_bytes = 0
        self.client = ""
        # Set by every sign of life, taken by the server when it looks for silent clients.
        self.is_alive = True
        self.silent_since = 0.0

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        peer = transport.get_extra_info("peername")
        self.client = f"{peer[0]}:{peer[1]}" if peer else "local"
        refusal = self._server.admit(self)
        if refusal is not None:
            self._is_over = True
            self._transport.write(refusal)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self.is_alive = True
        for start in range(0, len(data), SLICE_BYTES):
            self._inbox.append(data[start : start + SLICE_BYTES])
        self._waiting_bytes += len(data)
        self._interrupt()
        self._work()

    def eof_received(self) -> bool:
        """Finish what was asked for, then close. A hung-up client looks just the same."""
        if self._is_over:
            return False
        self._at_end = True
        self._interrupt()
        self._work()
        return True

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        self.is_alive = True
        self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, OSError):
            logger.debug("connection lost: client=%s error=%s", self.client, exc)
        self._transport = None
        self._is_over = True
        if self._lingering is not None:
            self._lingering.cancel()
        self._drop_input()
        self._release()
        if self._worker is not None:
            self._worker.cancel()
        else:
            self._worker = self._loop.create_task(self._session.close())
        self._server.remove(self, self._worker)

    # -- what commands may do

    async def send(self, data: bytes) -> None:
        """Write; waits while the client is slow to read."""
        if self._transport is None:
            raise asyncio.CancelledError
        self._transport.write(data)
        if self._writable is not None:
            await self._writable

    async def unless_input(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None when the client has written something, or hung up."""
        if self._requests or self._inbox or self._at_end:
            work.close()
            return None
        task = self._interruptible = self._loop.create_task(work)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._interruptible = None
        self.is_alive = True
        return None if task.cancelled() else task.result()

    # -- ours

    def abort(self) -> None:
        """Cut off."""
        if self._transport is not None:
            self._transport.abort()

    def close_with_error(self, code: str, message: str) -> None:
        """Say why, then close; somebody who does not read is cut off without a word."""
        if self._transport is None or self._is_over:
            return
        self._is_over = True
        self._drop_input()
        if self._writable is not None:
            self.abort()
            return
        self._transport.write(responses.refused(code, message, closes=True))
        self._transport.write_eof()
        if self._reading_paused:
            self._transport.resume_reading()
        self._lingering = self._loop.call_later(LINGER_SECONDS, self.abort)

    @property
    def is_busy(self) -> bool:
        """Whether a command is under way whose client reads what it is sent."""
        return self._worker is not None and self._writable is None

    def _release(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _interrupt(self) -> None:
        if self._interruptible is not None:
            self._interruptible.cancel()

    def _drop_input(self) -> None:
        self._inbox.clear()
        self._requests.clear()
        self._waiting_bytes = 0
        self._reader = LineReader(self._server.settings)
        self._server.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def _work(self) -> None:
        if self._is_over:
            return
        if self._worker is None:
            self._worker = self._loop.create_task(self._serve())
            self._worker.add_done_callback(self._worker_done)
        self._regulate_reading()

    def _worker_done(self, worker: "asyncio.Task[None]") -> None:
        self._worker = None
        if worker.cancelled():
            return
        if worker.exception() is not None:
            logger.error("closing connection: client=%s", self.client, exc_info=worker.exception())
            message = "this is a fault of the broker; its log says more"
            self.close_with_error("UNKNOWN_SERVER_ERROR", message)
        elif self._inbox or self._at_end:
            self._work()

    def _regulate_reading(self) -> None:
        crowded = self._waiting_bytes >= WAITING_BYTES_MAX
        if crowded != self._reading_paused and self._transport is not None:
            self._reading_paused = crowded
            if crowded:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    async def _serve(self) -> None:
        """Run what waits, in order; ends when nothing does."""
        try:
            while self._inbox and not self._session.is_over:
                data = self._inbox.popleft()
                self._waiting_bytes -= len(data)
                self._regulate_reading()
                self._requests.extend(self._reader.feed(data))
                self._count_held()
                while self._requests and not self._session.is_over:
                    await self._serve_next()
                    # However much waits, others have their turn in between.
                    await asyncio.sleep(0)
        except BaseException:
            await self._session.close()
            raise
        if self._session.is_over or self._at_end:
            self._is_over = True
            self._drop_input()
            await self._session.close()
            if self._transport is not None and self._lingering is None:
                self._transport.close()

    def _count_held(self) -> None:
        """Half a payload may be large, and so may the number of clients that send no more."""
        held = self._reader.held_bytes
        self._server.held_bytes += held - self._held_bytes
        self._held_bytes = held
        if held and self._server.held_bytes > self._server.settings.held_bytes_max:
            message = "too many payloads are on their way at once; try again"
            self._requests.append(Refusal("TOO_MUCH_AT_ONCE", message, is_fatal=True))

    async def _serve_next(self) -> None:
        request = self._requests[0]
        if isinstance(request, Publish):
            await self.send(await self._session.publish(self._take_publishes()))
            self._refusals = 0
            return
        self._requests.popleft()
        if isinstance(request, Command):
            response = await self._session.command(request.line)
            self._refusals = self._refusals + 1 if response[:4] == b"ERR " else 0
            await self.send(response)
        elif isinstance(request, Refusal):
            self._refusals += 1
            if request.is_fatal:
                self._end(request.code, request.message)
            else:
                await self.send(responses.refused(request.code, request.message))
        elif isinstance(request, ForeignProtocol):
            self._session.is_over = True
        if self._refusals >= REFUSALS_MAX:
            self._end("TOO_MANY_ERRORS", "write HELP on a new connection")

    def _end(self, code: str, message: str) -> None:
        self._session.is_over = True
        self.close_with_error(code, message)

    def _take_publishes(self) -> list[Publish]:
        """The records at the head of the queue: they go together."""
        requests = self._requests
        run: list[Publish] = []
        while requests:
            request = requests[0]
            if not isinstance(request, Publish):
                break
            run.append(request)
            requests.popleft()
        return run
