"""One broker's connection: opened when first needed, requests in order, late answers noticed."""

import asyncio
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import Protocol, cast

from headrace import __version__
from headrace.client.core.cluster import BrokerAddress
from headrace.client.core.failures import (
    BrokerNotReached,
    BrokerUnreachable,
    ClientClosed,
    RequestTimedOut,
)
from headrace.client.core.flows import Ask
from headrace.client.core.framing import FrameReader
from headrace.client.core.settings import ClientSettings
from headrace.client.core.wire import Wire, WireState
from headrace.core.errors import HeadraceError
from headrace.protocol.message import Message

Answer = asyncio.Future[Message | None]


class BrokerLink(Protocol):
    """A way to one broker, by socket or within the process; closed, the client makes another."""

    address: BrokerAddress

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def in_flight(self) -> int: ...

    def submit(self, ask: Ask) -> Answer:
        """Start a request; never waits."""
        ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


# None: this broker is reached over a socket.
Links = Callable[[BrokerAddress], BrokerLink | None]


class Connect(Protocol):
    """The seam to the network: as the loop's `create_connection`, one address at a time."""

    def __call__(
        self,
        factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        *,
        ssl: SSLContext | None,
    ) -> Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]: ...


def connect_by_loop(
    factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, ssl: SSLContext | None
) -> Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
    """The default seam."""
    return asyncio.get_running_loop().create_connection(factory, host, port, ssl=ssl)


class Link(asyncio.BufferedProtocol):
    """One connection to one broker; when it breaks, the client makes a new link."""

    def __init__(
        self,
        address: BrokerAddress,
        settings: ClientSettings,
        tls: SSLContext | None,
        connect: Connect,
    ) -> None:
        self.address = address
        self._settings = settings
        self._tls = tls
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._wire = Wire(str(address), settings.client_id, __version__)
        self._frames = FrameReader(settings.response_bytes_max)
        self._transport: asyncio.Transport | None = None
        # Requests that came before the connection was ready, in order.
        self._early: list[tuple[Ask, Answer]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_used_ms = self._now_ms()
        self._opening = self._loop.create_task(self._open())

    @property
    def is_ready(self) -> bool:
        return self._wire.state is WireState.READY

    @property
    def is_closed(self) -> bool:
        return self._wire.state is WireState.CLOSED

    @property
    def in_flight(self) -> int:
        return len(self._wire.in_flight) + len(self._early)

    def submit(self, ask: Ask) -> Answer:
        """Send a request now, or as soon as the connection is ready; never waits."""
        answer: Answer = self._loop.create_future()
        if self._wire.state is WireState.READY:
            self._send(ask, answer)
        elif self._wire.state is WireState.OPENING:
            self._early.append((ask, answer))
        else:
            answer.set_exception(self._wire.lost("it was closed"))
        return answer

    def _send(self, ask: Ask, answer: Answer) -> None:
        assert self._transport is not None
        now_ms = self._last_used_ms = self._now_ms()
        try:
            parts = self._wire.send(ask, now_ms + ask.timeout_ms, answer)
        except HeadraceError as error:
            answer.set_exception(error)
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        if not ask.expects_answer:
            answer.set_result(None)
        else:
            self._arm(now_ms + ask.timeout_ms)

    async def _open(self) -> None:
        host, port = self.address.host, self.address.port
        timeout_s = self._settings.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect(lambda: self, host, port, ssl=self._tls)
        except TimeoutError:
            limit = self._settings.connect_timeout_ms
            self._fail(BrokerNotReached(f"cannot connect to {host}:{port} within {limit} ms"))
        except OSError as error:
            reason = error.strerror or str(error)
            self._fail(
                BrokerNotReached(
                    f"cannot connect to {host}:{port}: {reason}",
                    hint="check that a broker listens there and the address is right",
                )
            )

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_closed:
            self._transport.abort()
            return
        self._transport.write(self._wire.open())
        self._arm(self._now_ms() + self._settings.greeting_timeout_ms)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except HeadraceError as error:
            self._fail(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self._wire.lost(exc or "closed by the broker"))

    # -- frames and time

    def _take(self, frame: memoryview) -> None:
        result = self._wire.receive(frame)
        if isinstance(result, tuple):
            call, response = result
            answer: Answer = call.waiter
            if not answer.done():
                answer.set_result(response)
        elif result is not None:
            assert self._transport is not None
            self._transport.write(result)
        elif self._wire.state is WireState.READY:
            early, self._early = self._early, []
            for ask, answer in early:
                if not answer.done():
                    self._send(ask, answer)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    def _arm(self, at_ms: float) -> None:
        """Look at the clock then, unless that happens earlier anyway."""
        if self._timer is not None:
            if self._timer.when() <= at_ms / 1000:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_ms / 1000, self._check_time)

    def _check_time(self) -> None:
        """One timer per connection: late answers while busy, idleness while not."""
        self._timer = None
        if self.is_closed:
            return
        now_ms = self._now_ms()
        due_ms = self._wire.next_deadline_ms()
        if self._wire.state is WireState.OPENING:
            limit = self._settings.greeting_timeout_ms
            self._fail(
                BrokerUnreachable(
                    f"{self.address} did not say what it speaks in {limit} ms; "
                    "is that a Kafka listener?"
                )
            )
        elif due_ms is None:
            idle_at_ms = self._last_used_ms + self._settings.connection_idle_ms_max
            if now_ms >= idle_at_ms:
                self.close()
            else:
                self._arm(idle_at_ms)
        elif now_ms + 0.5 >= due_ms:
            self._fail(self._too_late())
        else:
            self._arm(min(due_ms, self._give_up_late(now_ms)))

    def _give_up_late(self, now_ms: float) -> float:
        """Those that wait behind a request which may take longer are given up alone.

        Returns when the next one is due.
        """
        next_ms = float("inf")
        for call in self._wire.in_flight:
            answer: Answer = call.waiter
            if answer.done():
                continue
            if now_ms + 0.5 >= call.deadline_ms:
                answer.set_exception(self._too_late())
            else:
                next_ms = min(next_ms, call.deadline_ms)
        return next_ms

    def _too_late(self) -> RequestTimedOut:
        return RequestTimedOut(f"{self.address} did not answer in time")

    def _fail(self, error: HeadraceError) -> None:
        """Break the connection; everything unanswered gets the error."""
        if self.is_closed:
            return
        waiting: list[Answer] = [call.waiter for call in self._wire.fail()]
        waiting += [answer for _, answer in self._early]
        self._early = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error)

    def close(self) -> None:
        """Close now; unanswered requests fail."""
        self._fail(ClientClosed("connection"))
        if not self._opening.done():
            self._opening.cancel()

    async def wait_closed(self) -> None:
        """Return when the task that opened the connection has ended."""
        await asyncio.wait([self._opening])
