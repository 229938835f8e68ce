"""One broker's socket: requests go out at once, answers are read when somebody waits."""

import socket
from collections.abc import Callable
from ssl import SSLContext, SSLSocket

from headrace import __version__
from headrace.core.errors import HeadraceError
from headrace.core.files import Buffer
from headrace.network.address import BrokerAddress
from headrace.network.connection_state import ConnectionPhase, ConnectionState
from headrace.network.errors import ConnectFailed, RequestTimedOut
from headrace.network.framing import FrameReader
from headrace.network.send_request import SendRequest
from headrace.network.settings import ConnectionSettings
from headrace.protocol.message import Message

_GATHER_MAX = 64


class PendingResponse:
    """A place in line for an answer."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: Message | HeadraceError | None = None


class BrokerConnection:
    """One connection to one broker; when it breaks, the client makes a new one."""

    def __init__(
        self,
        address: BrokerAddress,
        settings: ConnectionSettings,
        tls: SSLContext | None,
        now_ms: Callable[[], float],
    ) -> None:
        self.address = address
        self._settings = settings
        self._now_ms = now_ms
        self._state = ConnectionState(str(address), settings.client_id, __version__)
        self._frames = FrameReader(settings.response_bytes_max)
        self.last_used_ms = now_ms()
        self.socket = self._connect(tls)
        try:
            self._open()
        except HeadraceError as error:
            self.fail(error)
            raise

    def _connect(self, tls: SSLContext | None) -> socket.socket:
        host, port = self.address.host, self.address.port
        try:
            plain = socket.create_connection((host, port), self._settings.connect_timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except (OSError, ValueError) as error:  # a host that cannot be a name is a ValueError
            reason = getattr(error, "strerror", None) or str(error)
            raise ConnectFailed(
                f"cannot connect to {host}:{port}: {reason}",
                hint="check that a broker listens there and the address is right",
            ) from error

    def _open(self) -> None:
        limit = self._settings.greeting_timeout_ms
        self._write([self._state.api_versions_request()], limit)
        deadline_ms = self._now_ms() + limit
        while self._state.phase is ConnectionPhase.OPENING:
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                raise self._state.greeting_error(limit)
            self._receive(left_ms)

    @property
    def is_closed(self) -> bool:
        return self._state.phase is ConnectionPhase.CLOSED

    @property
    def is_waiting(self) -> bool:
        return bool(self._state.in_flight)

    def submit(self, send: SendRequest) -> PendingResponse:
        """Send a request; failures are found in what is returned."""
        pending = PendingResponse()
        now_ms = self.last_used_ms = self._now_ms()
        try:
            parts = self._state.send(send, now_ms + send.timeout_ms, pending)
        except HeadraceError as error:
            pending.outcome = error
            return pending
        try:
            self._write(parts, send.timeout_ms)
        except HeadraceError as error:
            self.fail(error)
        return pending

    def receive(self, wait_ms: float) -> None:
        """Read what has arrived, or wait up to `wait_ms` for something; settles what is pending."""
        try:
            self._receive(wait_ms)
            due_ms = self._state.next_deadline_ms()
            if due_ms is not None and self._now_ms() >= due_ms:
                raise RequestTimedOut(f"{self.address} did not answer in time")
        except HeadraceError as error:
            self.fail(error)

    def wait_limit_ms(self) -> float:
        """How long until the oldest unanswered request is late."""
        due_ms = self._state.next_deadline_ms()
        return float("inf") if due_ms is None else max(due_ms - self._now_ms(), 0)

    def fail(self, error: HeadraceError) -> None:
        """Break the connection; everything unanswered gets the error."""
        for call in self._state.fail():
            pending: PendingResponse = call.waiter
            pending.outcome = error
        self.socket.close()

    def _write(self, parts: list[Buffer], timeout_ms: float) -> None:
        try:
            self.socket.settimeout(max(timeout_ms, 1) / 1000)
            for part in parts:
                self.socket.sendall(part)
        except OSError as error:
            raise self._state.lost_error(error.strerror or str(error)) from error

    def _receive(self, wait_ms: float) -> None:
        """One read (more, if TLS has decrypted more than was asked for), then its frames."""
        while True:
            try:
                self.socket.settimeout(max(wait_ms, 0.001) / 1000)
                count = self.socket.recv_into(self._frames.buffer())
            except TimeoutError:
                return
            except OSError as error:
                raise self._state.lost_error(error.strerror or str(error)) from error
            if count == 0:
                raise self._state.lost_error("closed by the broker")
            for frame in self._frames.received(count):
                self._handle_frame(frame)
            if not (isinstance(self.socket, SSLSocket) and self.socket.pending()):
                return

    def _handle_frame(self, frame: memoryview) -> None:
        result = self._state.receive(frame)
        if isinstance(result, tuple):
            call, response = result
            pending: PendingResponse = call.waiter
            pending.outcome = response
        elif result is not None:
            self._write([result], self._settings.greeting_timeout_ms)
