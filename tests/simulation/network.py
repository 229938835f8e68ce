"""A network in memory: ordered byte streams that are late, cut into odd pieces, and break.

Each connection is two `SimulatedTransport`s. What one writes waits in its own queue, leaves in
chunks of random size after random delays, and stays there while the other does not read: so
flow control is felt on both sides. Protocol callbacks run in the context of their process.

It is TCP, so nothing is lost, doubled or reordered within a connection. What can go wrong lies
on the way from one host to another, each direction for itself: it is slow, or nothing passes for
a while. Then bytes wait, resets are lost, and the other side believes in a connection that is
gone (half-open) until it sends something. A host that lives and does not listen refuses a
connection; one that is cut off or without power says nothing, and the attempt is repeated.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from tests.simulation.loop import VirtualLoop
from tests.simulation.processes import CURRENT_PROCESS, Process, host_of, is_alive

Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]
FIRST_FREE_PORT = 20_000
FIRST_RETRANSMISSION_SECONDS = 1.0


@dataclass(slots=True)
class Conditions:
    """How bad the network is."""

    delay_seconds_max: float = 0.001
    chunk_bytes_max: int = 65_536
    kernel_buffer_bytes: int = 65_536  # sent by one side and not yet read by the other


@dataclass(slots=True)
class LinkConditions:
    """How bad the way from one host to another is, beside what `Conditions` says of all."""

    delay_seconds: float = 0.0  # added to every delay
    is_blocked: bool = False


class SimulatedServer(asyncio.AbstractServer):
    """A listening address; gone when closed or when its process dies."""

    def __init__(self, network: "SimulatedNetwork", factory: Factory, address: Address) -> None:
        self.factory = factory
        self.address = address
        self.context = copy_context()
        self._network = network

    @property
    def sockets(self) -> tuple["_Socket", ...]:
        return (_Socket(self.address),)

    def close(self) -> None:
        if self.is_serving():
            del self._network.servers[self.address]

    def is_serving(self) -> bool:
        return self._network.servers.get(self.address) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        """It serves from the start."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Closed is closed."""


@dataclass(frozen=True, slots=True)
class _Socket:
    address: Address

    def getsockname(self) -> Address:
        return self.address


class SimulatedTransport(asyncio.Transport):
    """One side of a connection."""

    def __init__(
        self, network: "SimulatedNetwork", context: Context, host: str, peer_host: str
    ) -> None:
        super().__init__({"peername": (peer_host, 1), "sockname": (host, 2)})
        self.host = host
        self.link = network.link(host, peer_host)
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
        self._lost_told = False

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
        self.send_reset()

    def send_reset(self) -> None:
        """Tell the other side that this one is gone, if anything can tell it."""
        if self.link.is_blocked:
            return
        delay = self._network.delay() + self.link.delay_seconds
        self._loop.call_later(delay, self.peer.reset, context=self._network.context)

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
            delay = self._network.delay() + self.link.delay_seconds
            # The wire belongs to nobody: what the kernel has taken arrives after a kill too.
            self._loop.call_later(delay, self._pump, context=self._network.context)

    def unblocked(self) -> None:
        self._pump_later()

    def _pump(self) -> None:
        self._pumping = False
        if self._lost:
            return
        if self.link.is_blocked:  # `unblocked` comes back here
            if self._closing:  # the kernel has the bytes and goes on trying
                self._tell_lost(None)
        elif self.peer._lost:  # closed, or vanished: the bytes go nowhere
            self._unsent.clear()
            if self._closing:
                self._lose(None)
            elif self._network.is_powered(self.peer.host):
                self.peer.send_reset()  # its kernel knows of no such connection
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
            self._tell_lost(reason)

    def vanish(self) -> None:
        """The machine has no power: nobody learns of it, here or there."""
        self._lost = True
        self._network.transports.pop(self, None)

    def _tell_lost(self, reason: Exception | None) -> None:
        if not self._lost_told:
            self._lost_told = True
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
        self.servers: dict[Address, SimulatedServer] = {}
        self._links: dict[tuple[str, str], LinkConditions] = {}
        self._without_power: set[str] = set()
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

    # What lies between hosts.

    def link(self, source: str, target: str) -> LinkConditions:
        """The way from one host to another; for who wants to make it worse."""
        return self._links.setdefault((source, target), LinkConditions())

    def partition(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Nothing passes between two hosts any more; `one_way`: nothing from a to b."""
        for link in (self.link(a, b), *([] if one_way else [self.link(b, a)])):
            link.is_blocked = True

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Between these two hosts, or everywhere, all is well again; what waited goes on."""
        for pair, link in self._links.items():
            if a is None or set(pair) == {a, b}:
                link.is_blocked, link.delay_seconds = False, 0.0
        for transport in list(self.transports):
            if not transport.link.is_blocked:
                transport.unblocked()

    def power_on(self, host: str) -> None:
        self._without_power.discard(host)

    def is_powered(self, host: str) -> bool:
        return host not in self._without_power

    def _reaches(self, a: str, b: str) -> bool:
        """Whether a handshake comes to its end."""
        both_ways = not (self.link(a, b).is_blocked or self.link(b, a).is_blocked)
        return both_ways and self.is_powered(b)

    # What the loop asks for.

    def listen(self, factory: Factory, host: str, port: int) -> SimulatedServer:
        if port == 0:
            port = self._next_port
            self._next_port += 1
        address = host, port
        holder = self.servers.get(address)
        if holder is not None and is_alive(holder.context):
            raise OSError(98, f"port {port} is in use")
        server = self.servers[address] = SimulatedServer(self, factory, address)
        return server

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        context = copy_context()
        here = host_of(context)
        await asyncio.sleep(self.delay() + self.link(here, host).delay_seconds)
        pause = FIRST_RETRANSMISSION_SECONDS
        while not self._reaches(here, host):
            await asyncio.sleep(pause)
            pause *= 2
        server = self.servers.get((host, port))
        if server is None or not is_alive(server.context):
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        near = SimulatedTransport(self, context, here, host)
        far = SimulatedTransport(self, server.context, host, here)
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
            side.send_reset()

    def process_died(self, process: Process, *, power_cut: bool) -> None:
        """Break what the dead process had open; after a power cut nobody sends a reset for it."""
        if power_cut:
            self._without_power.add(process.host)
        for address, server in list(self.servers.items()):
            if server.context.get(CURRENT_PROCESS) is process:
                del self.servers[address]
        for transport in list(self.transports):
            if transport.process is process:
                if power_cut:
                    transport.vanish()
                else:  # some of what the kernel has taken may arrive before the reset
                    transport.send_reset()
                    self.loop.call_later(self.delay(), transport.vanish, context=self.context)
