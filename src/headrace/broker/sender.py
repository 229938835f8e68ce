"""The way out of one connection: answers go to the transport as fast as the client takes them.

What lies in files is read when it leaves, a piece at a time, and only while the transport has
nothing left to send: a client that asks for gigabytes and reads none of it holds one piece of
memory, however much it was promised. Pieces become smaller when many clients stand still, so
that all of them together stay within `UNSENT_BYTES`, and a little for each.

What is in no file is made before it can leave: descriptions, lists of topics, refusals. Clients
that read none of that may hold `RESPONSE_BYTES_MAX` together; beyond it those are cut off that have
stood still for longest.

The event loop never waits for a disk here. A piece that is not in the page cache is read by a
worker; and after `SLICE_BYTES` other connections have their turn.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headrace.broker.disk_reads import DiskReads
from headrace.core.files import Buffer, FileRange, Part

logger = logging.getLogger(__name__)

# What clients that stand still may hold in memory, all of them together.
UNSENT_BYTES: Final = 64 * 1024 * 1024
# What answers that lie in no file may take, of all clients that stand still.
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
# Who has stood still for so long may be cut off; the others may just not have had their turn.
STALLED_SECONDS_MIN: Final = 1.0
# With each piece the client's process is woken anew, so small ones cost both sides more.
PIECE_BYTES_MAX: Final = 1024 * 1024
PIECE_BYTES_MIN: Final = 16 * 1024
# What one connection may send before the others are looked at.
SLICE_BYTES: Final = PIECE_BYTES_MAX
# Unsent bytes above which a transport says that its client is slow.
TRANSPORT_BYTES: Final = 64 * 1024


class SendMemory:
    """What the senders of one node share: the room for pieces, and the workers that read."""

    __slots__ = ("_buffer", "_response_bytes", "_stalled", "reads", "unsent")

    def __init__(self, reads: DiskReads) -> None:
        self.reads = reads
        # Bytes of pieces that clients who stand still have not taken.
        self.unsent = 0
        self._buffer = bytearray()
        # Answers that clients have not taken, longest standing first, since when, and their sum.
        self._stalled: dict[Sender, tuple[int, float]] = {}
        self._response_bytes = 0

    def add_stalled(self, sender: "Sender", size: int) -> None:
        """A client has not taken `size` bytes of answers; room is made if that is too much."""
        now = asyncio.get_running_loop().time()
        before, since = self._stalled.get(sender, (0, now))
        self._stalled[sender] = (size, since)
        self._response_bytes += size - before
        while self._response_bytes > RESPONSE_BYTES_MAX:
            first = next(iter(self._stalled))
            before, since = self._stalled[first]
            if first is sender or now - since < STALLED_SECONDS_MIN:
                return
            self.remove_stalled(first)
            left = first.unsent_bytes
            if left < before:  # it reads, if slowly: the others come first
                self._stalled[first] = (left, now)
                self._response_bytes += left
            else:
                first.cut_off()

    def remove_stalled(self, sender: "Sender") -> None:
        """It has taken what it had to take, or is gone."""
        size, _ = self._stalled.pop(sender, (0, 0.0))
        self._response_bytes -= size

    def buffer(self, size: int) -> memoryview:
        """For the next piece of so many bytes or less. A large one is where the one before was,
        unless that was kept; small ones may be collected."""
        size = self.piece_bytes(size)
        if size <= TRANSPORT_BYTES:
            return memoryview(bytearray(size))
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]

    def retain(self, last: Buffer) -> None:
        """A transport still holds what it was given last: its room is not to be used again."""
        if isinstance(last, memoryview) and last.obj is self._buffer:
            self._buffer = bytearray()

    def piece_bytes(self, size: int) -> int:
        """How much of so many bytes may be in memory for one client."""
        # A share of what is left: however many come, it is never used up by any of them.
        share = (UNSENT_BYTES - self.unsent) // 64
        return min(size, max(PIECE_BYTES_MIN, min(PIECE_BYTES_MAX, share)))


class Sender:
    """Sends in order; `moved` is called when it has begun or ended to hold something back."""

    __slots__ = (
        "_backlog_changed",
        "_close_when_sent",
        "_failed",
        "_held",
        "_is_blocked",
        "_is_lost",
        "_is_under_way",
        "_memory",
        "_parts",
        "_reading",
        "_transport",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        memory: SendMemory,
        *,
        backlog_changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` is told why an answer that has begun to leave cannot be sent to its end."""
        self._transport = transport
        self._memory = memory
        self._backlog_changed = backlog_changed
        self._failed = failed
        self._parts: deque[Part] = deque()
        # The client does not read: the transport says when it does.
        self._is_blocked = False
        # What it has not taken of the last pieces.
        self._held = 0
        # A worker reads, or the other connections have their turn.
        self._is_under_way = False
        self._reading: asyncio.Task[None] | None = None
        self._close_when_sent = False
        self._is_lost = False

    @property
    def is_behind(self) -> bool:
        """Something has not been taken by the client yet."""
        return bool(self._parts) or self._transport.get_write_buffer_size() > 0

    @property
    def unsent_bytes(self) -> int:
        """What the transport still holds."""
        return self._transport.get_write_buffer_size()

    @property
    def is_slow(self) -> bool:
        """The client is behind: nothing more should be asked for on its behalf."""
        return self._is_blocked or bool(self._parts)

    def send(self, parts: Sequence[Part]) -> None:
        """Send these after all that came before."""
        if self._is_lost:
            return
        if not self._parts:
            if len(parts) == 1 and not isinstance(parts[0], FileRange):
                self._transport.write(parts[0])
                self._note_unsent()
                return
            for part in parts:
                if isinstance(part, FileRange):
                    break
            else:
                self._transport.writelines(parts)  # type: ignore[arg-type]  # no range among them
                self._note_unsent()
                return
        self._parts.extend(parts)
        if not (self._is_blocked or self._is_under_way):
            self._send_more()
            if self._parts:
                self._backlog_changed()

    def _note_unsent(self) -> None:
        if self._is_blocked:
            self._memory.add_stalled(self, self.unsent_bytes)

    def cut_off(self) -> None:
        """Others need the memory that this client holds by not reading."""
        self._fail(TimeoutError("the client does not read, and others need the memory"))

    def pause(self) -> None:
        """The transport has as much as it takes."""
        self._is_blocked = True

    def resume(self) -> None:
        """The client has read on."""
        self._unblock()
        if self._parts and not self._is_under_way:
            self._send_more_and_notify()

    def close(self) -> None:
        """Close the transport when all has left."""
        if self._parts:
            self._close_when_sent = True
        else:
            self._transport.close()

    def drop(self) -> None:
        """The client is gone."""
        self._is_lost = True
        self._parts.clear()
        self._unblock()

    def _unblock(self) -> None:
        self._is_blocked = False
        self._memory.remove_stalled(self)
        self._memory.unsent -= self._held
        self._held = 0

    def _send_more_and_notify(self) -> None:
        self._send_more()
        if not self._parts and not self._is_lost:
            if self._close_when_sent:
                self._transport.close()
            self._backlog_changed()

    def _send_more(self) -> None:
        """Send until the transport is full, the turn is over, or the disk has to be waited for."""
        parts = self._parts
        left = SLICE_BYTES
        ready: list[Buffer] = []
        gathered = 0
        while parts and not self._is_blocked:
            part = parts[0]
            if not isinstance(part, FileRange):
                ready.append(part)
                parts.popleft()
                continue
            if left <= 0:
                self._is_under_way = True
                asyncio.get_running_loop().call_soon(self._next_slice)
                break
            piece = self._memory.buffer(part.size)
            try:
                count = part.file.read_cached(part.position, piece)
            except OSError as error:
                self._fail(error)
                return
            if not count:
                self._is_under_way = True
                loop = asyncio.get_running_loop()
                self._reading = loop.create_task(self._read_in_worker(part))
                break
            part.skip(count)
            left -= count
            gathered += count
            ready.append(piece[:count])
            if part.size or gathered > TRANSPORT_BYTES:
                self._write(ready)
                ready, gathered = [], 0
            if not part.size:
                parts.popleft()
        if ready:
            self._write(ready)

    def _write(self, ready: list[Buffer]) -> None:
        self._transport.writelines(ready)
        if self._transport.get_write_buffer_size():
            self._memory.retain(ready[-1])
            if self._is_blocked:
                held = sum(map(len, ready))
                self._held += held
                self._memory.unsent += held

    def _next_slice(self) -> None:
        self._is_under_way = False
        if self._parts and not self._is_blocked:
            self._send_more_and_notify()

    async def _read_in_worker(self, part: FileRange) -> None:
        reads = self._memory.reads
        try:
            async with reads.permits:
                if not self._is_lost:
                    # Asked for only now: others have taken room meanwhile.
                    size = self._memory.piece_bytes(part.size)
                    data = await reads.executor.run(lambda: part.file.read(part.position, size))
                    self._send_piece(part, data)
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_under_way = False
            self._reading = None
        if not self._is_lost:
            self._send_more_and_notify()

    def _send_piece(self, part: FileRange, data: bytes) -> None:
        if not data:
            raise OSError(f"{part.file.path} ends before position {part.position}")
        if self._is_lost:
            return
        part.skip(len(data))
        if not part.size:
            self._parts.popleft()
        self._write([data])

    def _fail(self, error: Exception) -> None:
        """The client has the beginning of an answer; there is no way to take that back."""
        if not self._is_lost:
            self.drop()
            self._failed(error)
