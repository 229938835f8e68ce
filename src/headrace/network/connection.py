"""A connection to one broker: requests in order, their versions, and late responses noticed.

It opens at once, holds requests until the broker has said what it speaks, and when it breaks it
is done: who wants another makes one. It neither retries nor asks for metadata.
"""

import asyncio
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import Protocol, cast

from headrace import __version__
from headrace.core.errors import HeadraceError
from headrace.network.address import BrokerAddress
from headrace.network.connection_state import ConnectionPhase, ConnectionState
from headrace.network.errors import ClientClosed, ConnectFailed, RequestTimedOut
from headrace.network.framing import FrameReader
from headrace.network.send_request import SendRequest
from headrace.network.settings import ConnectionSettings
from headrace.protocol.message import Message

ResponseFuture = asyncio.Future[Message | None]


class BrokerConnection(Protocol):
    """A way to one broker, by socket or within the process; closed, it is of no more use."""

    address: BrokerAddress

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def in_flight(self) -> int: ...

    def submit(self, send: SendRequest) -> ResponseFuture:
        """Start a request; never waits."""
        ...

    def close(self, lost: str | None = None) -> None:
        """Close now. Unanswered requests fail as closed, or as lost for this reason."""
        ...

    async def wait_closed(self) -> None: ...


# None: this broker is reached over a socket.
ConnectionFactory = Callable[[BrokerAddress], BrokerConnection | None]


class Connect(Protocol):
    """The interface to the network: as the loop's `create_connection`, one address at a time."""

    def __call__(
        self,
        factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        *,
        ssl: SSLContext | None,
    ) -> Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]: ...


def connect_with_loop(
    factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, *, ssl: SSLContext | None
) -> Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
    """The default one."""
    return asyncio.get_running_loop().create_connection(factory, host, port, ssl=ssl)


class SocketConnection(asyncio.BufferedProtocol):
    """One connection over a socket; it opens from the moment it is made."""

    def __init__(
        self,
        address: BrokerAddress,
        settings: ConnectionSettings,
        tls: SSLContext | None,
        connect: Connect,
    ) -> None:
        self.address = address
        self._settings = settings
        self._tls = tls
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._state = ConnectionState(str(address), settings.client_id, __version__)
        self._frames = FrameReader(settings.response_bytes_max)
        self._transport: asyncio.Transport | None = None
        # Requests that came before the connection was ready, in order.
        self._early: list[tuple[SendRequest, ResponseFuture]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_used_ms = self._now_ms()
        self._opening = self._loop.create_task(self._open())

    @property
    def is_ready(self) -> bool:
        return self._state.phase is ConnectionPhase.READY

    @property
    def is_closed(self) -> bool:
        return self._state.phase is ConnectionPhase.CLOSED

    @property
    def in_flight(self) -> int:
        return len(self._state.in_flight) + len(self._early)

    def submit(self, send: SendRequest) -> ResponseFuture:
        """Send a request now, or as soon as the connection is ready; never waits."""
        response: ResponseFuture = self._loop.create_future()
        if self._state.phase is ConnectionPhase.READY:
            self._send(send, response)
        elif self._state.phase is ConnectionPhase.OPENING:
            self._early.append((send, response))
        else:
            closed = ConnectFailed(f"the connection to {self.address} was closed before")
            response.set_exception(closed)
        return response

    def _send(self, send: SendRequest, response: ResponseFuture) -> None:
        assert self._transport is not None
        now_ms = self._last_used_ms = self._now_ms()
        try:
            parts = self._state.send(send, now_ms + send.timeout_ms, response)
        except HeadraceError as error:
            response.set_exception(error)
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        if not send.expects_response:
            response.set_result(None)
        else:
            self._arm(now_ms + send.timeout_ms)

    async def _open(self) -> None:
        host, port = self.address.host, self.address.port
        timeout_s = self._settings.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect(lambda: self, host, port, ssl=self._tls)
        except TimeoutError:
            limit = self._settings.connect_timeout_ms
            self._fail(ConnectFailed(f"cannot connect to {host}:{port} within {limit} ms"))
        except (OSError, ValueError) as error:  # a host that cannot be a name is a ValueError
            reason = getattr(error, "strerror", None) or str(error)
            self._fail(
                ConnectFailed(
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
        self._transport.write(self._state.api_versions_request())
        self._arm(self._now_ms() + self._settings.greeting_timeout_ms)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._receive(frame)
        except HeadraceError as error:
            self._fail(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self._state.lost_error(exc or "closed by the broker"))

    # -- frames and time

    def _receive(self, frame: memoryview) -> None:
        result = self._state.receive(frame)
        if isinstance(result, tuple):
            call, response = result
            waiter: ResponseFuture = call.waiter
            if not waiter.done():
                waiter.set_result(response)
        elif result is not None:
            assert self._transport is not None
            self._transport.write(result)
        elif self._state.phase is ConnectionPhase.READY:
            early, self._early = self._early, []
            for send, waiter in early:
                if not waiter.done():
                    self._send(send, waiter)

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
        due_ms = self._state.next_deadline_ms()
        if self._state.phase is ConnectionPhase.OPENING:
            self._fail(self._state.greeting_error(self._settings.greeting_timeout_ms))
        elif due_ms is None:
            idle_at_ms = self._last_used_ms + self._settings.connection_idle_ms_max
            if now_ms >= idle_at_ms:
                self.close()
            else:
                self._arm(idle_at_ms)
        elif now_ms + 0.5 >= due_ms:
            self._fail(self._timed_out())
        else:
            self._arm(min(due_ms, self._expire_late(now_ms)))

    def _expire_late(self, now_ms: float) -> float:
        """Those that wait behind a request which may take longer are given up alone.

        Returns when the next one is due.
        """
        next_ms = float("inf")
        for call in self._state.in_flight:
            waiter: ResponseFuture = call.waiter
            if waiter.done():
                continue
            if now_ms + 0.5 >= call.deadline_ms:
                waiter.set_exception(self._timed_out())
            else:
                next_ms = min(next_ms, call.deadline_ms)
        return next_ms

    def _timed_out(self) -> RequestTimedOut:
        return RequestTimedOut(f"{self.address} did not answer in time")

    def _fail(self, error: HeadraceError) -> None:
        """Break the connection; everything unanswered gets the error."""
        if self.is_closed:
            return
        waiting: list[ResponseFuture] = [call.waiter for call in self._state.fail()]
        waiting += [waiter for _, waiter in self._early]
        self._early = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def close(self, lost: str | None = None) -> None:
        """Close now. Unanswered requests fail as closed, or as lost for this reason."""
        self._fail(ClientClosed("connection") if lost is None else self._state.lost_error(lost))
        if not self._opening.done():
            self._opening.cancel()

    async def wait_closed(self) -> None:
        """Return when the task that opened the connection has ended."""
        await asyncio.wait([self._opening])
