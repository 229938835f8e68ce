"""A network in memory: ordered byte streams that are late, cut into odd pieces, and break.

Each connection is two `SimulatedTransport`s. What one writes waits in its own queue, leaves in
chunks of random size after random delays, and stays there while the other does not read: so
flow control is felt on both sides. Protocol callbacks run in the context of their process.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from tests.simulation.loop import VirtualLoop
from tests.simulation.processes import CURRENT_PROCESS, Process, is_alive

Factory = Callable[[], asyncio.BaseProtocol]
FIRST_FREE_PORT = 20_000


@dataclass(slots=True)
class Conditions:
    """How bad the network is."""

    delay_seconds_max: float = 0.001
    chunk_bytes_max: int = 65_536
    kernel_buffer_bytes: int = 65_536  # sent by one side and not yet read by the other


class SimulatedServer(asyncio.AbstractServer):
    """A listening address; gone when closed or when its process dies."""

    def __init__(self, network: "SimulatedNetwork", factory: Factory, port: int) -> None:
        self.factory = factory
        self.port = port
        self.context = copy_context()
        self._network = network

    @property
    def sockets(self) -> tuple["_Address", ...]:
        return (_Address(self.port),)

    def close(self) -> None:
        if self._network.servers.get(self.port) is self:
            del self._network.servers[self.port]

    def is_serving(self) -> bool:
        return self._network.servers.get(self.port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        """It serves from the start."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Closed is closed."""


@dataclass(frozen=True, slots=True)
class _Address:
    port: int

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


class SimulatedTransport(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, network: "SimulatedNetwork", context: Context, peername: str) -> None:
        super().__init__({"peername": (peername, 1), "sockname": (peername, 2)})
        self._network = network
        self._loop = network.loop
        self._context = context
        self._protocol: asyncio.BaseProtocol
        self.peer: SimulatedTransport
        self._unsent = bytearray()
        self._high, self._low = 65_536, 16_384
        self._writing_paused = False
        self._reading = True
        self._closing = False
        self._lost = False
        self._pumping = False
        self._eof_wanted = False

    @property
    def process(self) -> Process | None:
        return self._context.get(CURRENT_PROCESS)

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._soon(protocol.connection_made, self)

    # The transport as protocols see it.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not is_alive(self._context):
            return
        self._unsent += data
        self._regulate_writing()
        self._pump_later()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._eof_wanted = True
        self._pump_later()

    def get_write_buffer_size(self) -> int:
        return max(0, len(self._unsent) - self._network.conditions.kernel_buffer_bytes)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._regulate_writing()

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.peer._pump_later()

    def close(self) -> None:
        """What was written still arrives, then the other side sees the end."""
        if not self._closing:
            self._closing = True
            self._eof_wanted = True
            self._reading = False
            self._pump_later()

    def abort(self) -> None:
        """What was written and not sent is dropped; the other side sees a reset."""
        self._lose(None)
        self._loop.call_later(self._network.delay(), self.peer.reset)

    def reset(self) -> None:
        """The other side is gone."""
        self._lose(ConnectionResetError("connection reset by peer"))

    # Bytes on their way.

    def _regulate_writing(self) -> None:
        size = self.get_write_buffer_size()
        if size > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()
        elif size <= self._low and self._writing_paused:
            self._writing_paused = False
            self._soon(self._protocol.resume_writing)

    def _pump_later(self) -> None:
        if (self._unsent or self._eof_wanted) and not (self._pumping or self._lost):
            self._pumping = True
            # The wire belongs to nobody: what the kernel has taken arrives after a kill too.
            self._loop.call_later(self._network.delay(), self._pump, context=self._network.context)

    def _pump(self) -> None:
        self._pumping = False
        if self._lost:
            return
        if self.peer._lost:  # closed, or vanished in a power cut: the bytes go nowhere
            self._unsent.clear()
            if self._closing:
                self._lose(None)
        elif self._unsent:
            if not self.peer._reading:
                if self.peer._closing:  # nobody will ever read it
                    self._unsent.clear()
                    self._pump_later()
                return  # `resume_reading` comes back here
            chunk = self._network.chunk(self._unsent)
            del self._unsent[: len(chunk)]
            self._regulate_writing()
            self._pump_later()
            self.peer._arrived(self.peer._deliver, chunk)
        elif self._eof_wanted:
            self._eof_wanted = False
            self.peer._arrived(self.peer._deliver_eof)
            if self._closing:
                self._lose(None)

    def _deliver(self, chunk: bytes) -> None:
        if self._closing or self._lost:
            return
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            cast(asyncio.Protocol, self._protocol).data_received(chunk)
            return
        while chunk and not self._closing:
            room = memoryview(self._protocol.get_buffer(len(chunk))).cast("B")
            count = min(len(room), len(chunk))
            room[:count] = chunk[:count]
            chunk = chunk[count:]
            self._protocol.buffer_updated(count)

    def _deliver_eof(self) -> None:
        if not (self._closing or self._lost):
            stay_open = cast(asyncio.Protocol, self._protocol).eof_received()
            if not stay_open:
                self.close()

    def _lose(self, reason: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._unsent.clear()
            self._network.transports.pop(self, None)
            self._soon(self._protocol.connection_lost, reason)

    def _arrived(self, callback: Callable[..., Any], *args: object) -> None:
        """Called by the wire, which belongs to nobody; at once, unless the receiver is dead."""
        if is_alive(self._context):
            self._context.run(callback, *args)

    def _soon(self, callback: Callable[..., Any], *args: object) -> None:
        self._loop.call_soon(callback, *args, context=self._context)


class SimulatedNetwork:
    """All listening addresses and connections of one world."""

    def __init__(self, loop: VirtualLoop, random: Random, conditions: Conditions) -> None:
        self.loop = loop
        self.conditions = conditions
        self.servers: dict[int, SimulatedServer] = {}
        self.transports: dict[SimulatedTransport, None] = {}
        self.context = copy_context()
        self._random = random
        self._next_port = FIRST_FREE_PORT
        loop.network = self

    def delay(self) -> float:
        return self._random.random() * self.conditions.delay_seconds_max

    def chunk(self, unsent: bytearray) -> bytes:
        """What arrives next: mostly all of it, sometimes a piece, sometimes a single byte."""
        size = min(len(unsent), self.conditions.chunk_bytes_max)
        chance = self._random.random()
        if chance < 0.2:
            size = 1 if chance < 0.1 else 1 + int(self._random.random() * size)
        return bytes(unsent[:size])

    def listen(self, factory: Factory, _host: str, port: int) -> SimulatedServer:
        if port == 0:
            port = self._next_port
            self._next_port += 1
        holder = self.servers.get(port)
        if holder is not None and is_alive(holder.context):
            raise OSError(98, f"port {port} is in use")
        server = self.servers[port] = SimulatedServer(self, factory, port)
        return server

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await asyncio.sleep(self.delay())
        server = self.servers.get(port)
        if server is None or not is_alive(server.context):
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        near = SimulatedTransport(self, copy_context(), "127.0.0.1")
        far = SimulatedTransport(self, server.context, "127.0.0.1")
        near.peer, far.peer = far, near
        self.transports[near] = self.transports[far] = None
        protocol = factory()
        near.begin(protocol)
        far.begin(server.context.run(server.factory))
        await asyncio.sleep(0)  # connection_made comes before the caller goes on
        return near, protocol

    def drop(self, transport: SimulatedTransport) -> None:
        """Break a connection in both directions, with whatever was on its way."""
        for side in (transport, transport.peer):
            self.loop.call_later(self.delay(), side.reset, context=self.context)

    def process_died(self, process: Process, *, power_cut: bool) -> None:
        """Break what the dead process had open; after a power cut nobody sends a reset for it."""
        for port, server in list(self.servers.items()):
            if server.context.get(CURRENT_PROCESS) is process:
                del self.servers[port]
        for transport in list(self.transports):
            if transport.process is process:
                if power_cut:
                    transport._lost = True
                    del self.transports[transport]
                else:
                    self.drop(transport)
