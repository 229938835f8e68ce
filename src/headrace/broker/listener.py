"""The connections of one named listener: how many there are, and which have fallen silent."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf

from headrace.broker.connection import Connection, FrameHandler
from headrace.broker.sender import SendMemory
from headrace.core.keys.server import ServerKeys
from headrace.core.shared_calls import call_each

logger = logging.getLogger(__name__)

# How often silent connections are looked for, as a share of the time they may be silent, and
# between which bounds: a look costs something, and frees memory even where nobody is closed.
IDLE_CHECKS_PER_LIMIT = 4
IDLE_CHECK_SECONDS_MIN = 0.1
IDLE_CHECK_SECONDS_MAX = 150.0
REFUSALS_REPORT_SECONDS = 1.0


class ConnectionQuotas:
    """Connections of the whole node: bounded over all its listeners, in all and per address.

    `config` gives the broker's configuration of the moment: both limits may change while it runs.
    `descriptors_max` is what the limit of open files leaves for them: the log needs the others.
    """

    def __init__(
        self, config: Callable[[], ServerKeys], descriptors_max: int | None = None
    ) -> None:
        self._config = config
        self._descriptors_max = descriptors_max
        self._by_address: Counter[str] = Counter()

    def acquire(self, address: str) -> str | None:
        """Count a connection in, or say which limit it would break."""
        config = self._config()
        connections = self._by_address.total()
        if connections >= config.max_connections:
            return f"max.connections={config.max_connections}"
        if self._descriptors_max is not None and connections >= self._descriptors_max:
            return f"{self._descriptors_max} connections, by the limit of open files (ulimit -n)"
        if self._by_address[address] >= config.max_connections_per_ip:
            return f"max.connections.per.ip={config.max_connections_per_ip}"
        self._by_address[address] += 1
        return None

    def release(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Listener:
    """One address clients connect to, and the address they are told to come back to."""

    def __init__(
        self,
        name: str,
        frame_handler: Callable[[Connection], FrameHandler],
        quotas: ConnectionQuotas,
        *,
        frame_bytes_max: int,
        send_memory: SendMemory,
        now: Callable[[], float],
        idle_seconds_max: float | None,
    ) -> None:
        """`frame_handler` makes what serves the frames of one connection, none of which may be
        larger than `frame_bytes_max`.

        `idle_seconds_max`: how long a connection may be silent; None: for ever.
        """
        self.name = name
        self.send_memory = send_memory
        self.now = now
        self._frame_handler = frame_handler
        self._frame_bytes_max = frame_bytes_max
        self._quotas = quotas
        self._idle_seconds_max = idle_seconds_max
        self.connections: dict[Connection, None] = {}
        self.is_open = False
        self._is_closed = False
        self.accepted = 0
        self.refused = 0
        self._next_report = -inf

    def open(self) -> None:
        """Serve; whoever connected since the address was bound has waited for this."""
        self.is_open = True
        self._each(Connection.regulate_reading)

    def connection(self) -> Connection:
        """The protocol factory for the transport."""
        return Connection(self, self._frame_handler, self._frame_bytes_max)

    def admit(self, connection: Connection) -> bool:
        if self._is_closed:
            return False
        broken_limit = self._quotas.acquire(connection.origin.client_host)
        if broken_limit is not None:
            self.refused += 1
            self._report_refusal(connection.origin.client_host, broken_limit)
            return False
        self.connections[connection] = None
        self.accepted += 1
        return True

    def _report_refusal(self, client: str, limit: str) -> None:
        """A line now and then: clients that are refused come back at once."""
        now = self.now()
        if now < self._next_report:
            return
        self._next_report = now + REFUSALS_REPORT_SECONDS
        logger.warning(
            "refused a connection: listener=%s client=%s limit=%s refused_since_start=%d",
            self.name,
            client,
            limit,
            self.refused,
        )

    def remove(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._quotas.release(connection.origin.client_host)

    async def close_idle(self, every_seconds: float) -> None:
        """Run for as long as the listener: close the silent, take memory from the quiet."""
        while True:
            await asyncio.sleep(every_seconds)
            self._each(partial(self._check_idle, self.now(), every_seconds))

    def _check_idle(self, now: float, every_seconds: float, connection: Connection) -> None:
        if connection.active:
            connection.active = False
            connection.last_activity = now
        silent = now - connection.last_activity
        if silent > every_seconds:
            connection.release_memory()
        limit = self._idle_seconds_max
        if limit is not None and connection.idle and silent > limit:
            connection.close_idle()

    def stop_reading(self) -> None:
        """Serve nothing new; what is under way may still be answered."""
        self.is_open = False
        self._each(Connection.regulate_reading)

    def close(self) -> None:
        self._is_closed = True  # whoever was accepted and not yet introduced
        self._each(Connection.close)

    def abort(self) -> None:
        self._is_closed = True
        self._each(Connection.abort)

    def _each(self, call: Callable[[Connection], None]) -> None:
        call_each(logger, "a connection", tuple(self.connections), call)


def idle_check_seconds(idle_seconds_max: float | None) -> float:
    """How often to look for silent connections."""
    if idle_seconds_max is None:
        return IDLE_CHECK_SECONDS_MAX
    return min(
        max(idle_seconds_max / IDLE_CHECKS_PER_LIMIT, IDLE_CHECK_SECONDS_MIN),
        IDLE_CHECK_SECONDS_MAX,
    )
