"""The connections of one named listener: how many there are, and which have fallen silent."""

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.connection import Connection
from headrace.broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)


class ConnectionCount:
    """Connections of the whole node, bounded by `max.connections` over all its listeners."""

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.current = 0


class Listener:
    """One address clients connect to, and the address they are told to come back to."""

    def __init__(
        self,
        name: str,
        dispatcher: Dispatcher,
        count: ConnectionCount,
        *,
        now: Callable[[], float],
        idle_seconds_max: float,
    ) -> None:
        self.name = name
        self.now = now
        self._dispatcher = dispatcher
        self._count = count
        self._idle_seconds_max = idle_seconds_max
        self.connections: dict[Connection, None] = {}
        self.is_open = False

    def open(self) -> None:
        """Serve; whoever connected since the address was bound has waited for this."""
        self.is_open = True
        for connection in self.connections:
            connection.regulate_reading()

    def connection(self) -> Connection:
        """The protocol factory for the transport."""
        return Connection(self, self._dispatcher)

    def admit(self, connection: Connection) -> bool:
        if self._count.current >= self._count.connections_max:
            logger.warning(
                "refused a connection: listener=%s client=%s max.connections=%d",
                self.name,
                connection.client_host,
                self._count.connections_max,
            )
            return False
        self._count.current += 1
        connection.last_activity = self.now()
        self.connections[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._count.current -= 1

    async def close_idle(self, every_seconds: float) -> None:
        """Run for as long as the listener: close the silent, take memory from the quiet."""
        while True:
            await asyncio.sleep(every_seconds)
            now = self.now()
            for connection in list(self.connections):
                silent = now - connection.last_activity
                if silent > every_seconds:
                    connection.release_memory()
                if connection.idle and silent > self._idle_seconds_max:
                    connection.close()

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
