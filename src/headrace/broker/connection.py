"""One client connection: requests in, answers out in the order of the requests.

Requests start in arrival order and may finish in any order; each takes a place in the queue
of answers, and answers leave from its head. What a client can make us hold is bounded: while
too many requests are unanswered, or answers unread, we stop reading from it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from operator import methodcaller
from typing import Any, Protocol, cast

from headrace.broker.fetch_rate_limiter import FetchRateLimiter
from headrace.broker.receive_buffer import ReceiveBuffer
from headrace.broker.request import DelayedOperation, RequestOrigin
from headrace.broker.sender import TRANSPORT_BYTES, Sender, SendMemory
from headrace.core.errors import HeadraceError
from headrace.core.files import Part
from headrace.core.shared_calls import call_each
from headrace.protocol.frames import encode_response_parts
from headrace.security.principal import ANONYMOUS

logger = logging.getLogger(__name__)

# Requests of one connection that may be under way at once. Clients that pipeline without end
# (librdkafka's default is a million) are simply not read from until answers have left.
UNANSWERED_MAX = 256
# Bytes of complete answers behind one that is not, above which a connection is not read from.
HELD_BYTES_MAX = 1024 * 1024
# Long polls of one connection; each may turn into an answer of `fetch.max.bytes`.
DELAYED_OPERATIONS_MAX = 8


class FrameHandler(Protocol):
    """What becomes of the frames of one connection."""

    def handle(self, frame: memoryview) -> None:
        """Start one request. Raises what must cost the client its connection."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what a request has to do later; a node that stops waits for it."""
        ...


class ConnectionOwner(Protocol):
    """The listener that a connection came in by."""

    name: str
    send_memory: SendMemory
    is_open: bool

    def admit(self, connection: "Connection") -> bool:
        """Count it in; false if there may be no further one."""
        ...

    def remove(self, connection: "Connection") -> None: ...


class ResponseSlot:
    """A place in the queue of answers; `parts` is None until the answer is known."""

    __slots__ = ("connection", "held_bytes", "parts")

    # A response becomes the parts of its frame.
    encode = staticmethod(encode_response_parts)

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.parts: Sequence[Part] | None = None
        # Counted while a complete answer waits for another before it.
        self.held_bytes = 0

    def send(self, parts: Sequence[Part] | None) -> None:
        """Fill the place; with nothing, where no response is owed."""
        self.connection.fill(self, parts or ())

    def abort(self, reason: HeadraceError | None = None) -> None:
        """There is no answer to some requests but the end of the connection."""
        if reason is None:
            self.connection.close()
        else:
            self.connection.close_on_error(reason)


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self,
        owner: ConnectionOwner,
        frame_handler: "Callable[[Connection], FrameHandler]",
        frame_bytes_max: int,
    ) -> None:
        self.origin = RequestOrigin(ANONYMOUS, "", owner.name)
        self.frames = frame_handler(self)
        # What a request has to do later; a node that stops waits for it.
        self.start = self.frames.start
        self._owner = owner
        self._received = ReceiveBuffer(frame_bytes_max)
        self._slots: deque[ResponseSlot] = deque()
        # Answers that were known while their frames were served, before all in the queue.
        self._ready: list[Part] = []
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._in_frames = False
        self._reading_paused = False
        self._frames_waiting = False
        # Requests under way whose effect the next ones must see, and answers being encoded.
        self._mutes = 0
        # Of answers that are complete but have to wait for others before them.
        self._held_bytes = 0
        # Answers that wait for something else than the client; they are told when it is gone.
        self.delayed_operations: dict[DelayedOperation, None] = {}
        self.fetch_rate_limiter = FetchRateLimiter()
        # Set by every request, taken by the listener when it looks for silent connections.
        self.active = True
        self.last_activity = 0.0
        self.closed = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=TRANSPORT_BYTES)
        self._sender = Sender(
            self._transport,
            self._owner.send_memory,
            backlog_changed=self.regulate_reading,
            failed=self._send_failed,
        )
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        self.origin = self.origin._replace(
            client_host=f"/{peer[0]}" if peer else "/local",
            local_host=local[0] if local else "localhost",
        )
        if self._owner.admit(self):
            self.regulate_reading()
        else:
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - frames decide the size
        return self._received.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        self._received.received(nbytes)
        self._serve()

    def pause_writing(self) -> None:
        if self._sender is not None:
            self._sender.pause()
        self.regulate_reading()

    def resume_writing(self) -> None:
        # Who reads a long answer slowly is not silent.
        self.active = True
        if self._sender is not None:
            self._sender.resume()
        self.regulate_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, OSError):
            logger.debug("connection lost: client=%s error=%s", self.origin.client_host, exc)
        self.closed = True
        self._slots.clear()
        self._held_bytes = 0
        if self._sender is not None:
            self._sender.drop()
        call_each(
            logger, "a waiting request", tuple(self.delayed_operations), methodcaller("cancel")
        )
        self._owner.remove(self)

    # ours

    @property
    def idle(self) -> bool:
        return not self._slots

    @property
    def unanswered(self) -> int:
        return len(self._slots)

    @property
    def is_paused(self) -> bool:
        """Not read from, because of a bound."""
        return self._reading_paused

    def close(self) -> None:
        if self._sender is not None and not self.closed:
            self.closed = True
            self._sender.close()

    def close_idle(self) -> None:
        """Close a silent connection; one that does not even read its answers is cut off."""
        if self._sender is not None and self._sender.is_behind:
            self.abort()
        else:
            self.close()

    def abort(self) -> None:
        if self._transport is not None:
            self.closed = True
            self._transport.abort()

    def reserve_slot(self) -> ResponseSlot:
        """Take the next place in the queue of answers."""
        slot = ResponseSlot(self)
        self._slots.append(slot)
        return slot

    def fill(self, slot: ResponseSlot, parts: Sequence[Part]) -> None:
        """Fill a place; whatever is ready at the head of the queue leaves now.

        While frames are being served the answers collect and leave together at the end.
        """
        slot.parts = parts
        slots = self._slots
        if not slots:
            return  # the client is gone
        if slots[0] is not slot:
            slot.held_bytes = sum(map(len, parts))
            self._held_bytes += slot.held_bytes
        elif not self._in_frames:
            self._send_ready()

    def send_in_turn(self, data: bytes) -> None:
        """The answer to the frame that is being served; it leaves with those of the others."""
        if self._slots:
            self.fill(self.reserve_slot(), (data,))
        else:
            self._ready.append(data)

    def mute(self) -> None:
        """Start no further request until `unmute`.

        Kafka serves the requests of one connection one after the other. Produce and fetch may
        overlap here, since their effects come in order all the same; others have to wait.
        """
        self._mutes += 1

    def unmute(self) -> None:
        """To be called once for each `mute`."""
        self._mutes -= 1
        self.regulate_reading()

    def release_memory(self) -> None:
        self._received.release_if_idle()

    def _serve(self) -> None:
        """Start every whole frame that has arrived, as far as the bounds allow."""
        if not self._owner.is_open:
            # uvloop begins to read after `connection_made`, whatever was asked there.
            self._frames_waiting = True
            if self._transport is not None:
                self._transport.pause_reading()
            return
        self.active = True
        if self._mutes:
            self._frames_waiting = True
            return
        self._in_frames = True
        handle = self.frames.handle
        try:
            while (frame := self._received.next_frame()) is not None:
                handle(frame)
                if self.closed:
                    break
                # With nothing held up there is nothing to bound.
                if self._mutes or (len(self._slots) > 1 and self._apply_backpressure()):
                    self._frames_waiting = True
                    break
        except HeadraceError as error:
            self.close_on_error(error)
        except Exception:
            logger.exception("closing connection after a fault: client=%s", self.origin.client_host)
            self._close_after_responses()
        finally:
            self._in_frames = False
        if not self.closed:
            self._send_ready()

    def close_on_error(self, error: HeadraceError) -> None:
        """There is no answer to such a request but this."""
        logger.warning("closing connection: client=%s reason=%s", self.origin.client_host, error)
        self._close_after_responses()

    def _close_after_responses(self) -> None:
        """Close, after the answers to what was asked before have left."""
        self._send_ready()
        self.close()

    def _send_ready(self) -> None:
        slots = self._slots
        out, self._ready = self._ready, []
        while slots:
            slot = slots[0]
            if slot.parts is None:
                break
            out.extend(slot.parts)
            self._held_bytes -= slot.held_bytes
            slots.popleft()
        if out and self._sender is not None and not self.closed:
            self._sender.send(out)
        if slots or self._reading_paused or self._frames_waiting:
            self.regulate_reading()

    def _send_failed(self, error: Exception) -> None:
        logger.warning(
            "closing connection, its answer cannot be sent: client=%s error=%s",
            self.origin.client_host,
            error,
        )
        self.abort()

    def regulate_reading(self) -> None:
        """Stop or go on reading, as the bounds say."""
        if self._transport is None or self.closed:
            return
        over_limit = self._over_limit()
        if over_limit != self._reading_paused:
            self._reading_paused = over_limit
            if over_limit:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if self._frames_waiting and not over_limit:
            # They arrived before the pause; no further bytes may come to trigger them.
            self._frames_waiting = False
            asyncio.get_running_loop().call_soon(self._serve_after_pause)

    def _apply_backpressure(self) -> bool:
        if self._held_bytes >= HELD_BYTES_MAX:
            self._send_ready()
        return self._over_limit()

    def _over_limit(self) -> bool:
        return (
            self._mutes > 0
            or (self._sender is not None and self._sender.is_slow)
            or len(self._slots) >= UNANSWERED_MAX
            or len(self.delayed_operations) >= DELAYED_OPERATIONS_MAX
            or self._held_bytes >= HELD_BYTES_MAX
            or not self._owner.is_open
        )

    def _serve_after_pause(self) -> None:
        if self.closed:
            return
        if self._reading_paused:
            self._frames_waiting = True
        else:
            self._serve()
