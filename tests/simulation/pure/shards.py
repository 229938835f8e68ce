"""A coordinator's shard on a node: what the runtime of `headrace.coordinator` does, without I/O.

One node leads at a time, chosen by the world as a controller would. It writes to its own log; what
it has flushed *in an epoch that is still the newest* is committed. A new leader has everything
that was committed, and some first part of what was not. One that is cut off does not know that
it was put out: it goes on deciding, but nothing of that is ever committed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.records import GroupRecord, decode
from headrace.groups.result import GroupResult
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.metadata.image import Image
from tests.simulation.pure.kernel import Kernel, NodeContext

DECODED_ONE_IN = 8


@dataclass(frozen=True, slots=True)
class Request:
    number: int
    operation: Callable[[GroupShard, GroupResult, object], Any]
    """Run on the shard; returns a response, or replies through the result."""


@dataclass(frozen=True, slots=True)
class Response:
    number: int
    value: Any


@dataclass(slots=True)
class Leadership:
    """Who leads, and what is committed: what all nodes together would know."""

    epoch: int = 0
    leader: NodeContext | None = None
    committed: list[Any] = field(default_factory=list)


class ShardProgram:
    """One term of a leader."""

    def __init__(
        self,
        node: NodeContext,
        leadership: Leadership,
        settings: GroupSettings,
        image: Image,
        *,
        new_shard: Callable[[], GroupShard] = GroupShard,
    ) -> None:
        self._node = node
        self._leadership = leadership
        self.epoch = leadership.epoch
        self._settings = settings
        self._image = image
        self._replies: list[tuple[int, object, Any]] = []  # end of the log, to whom, what
        self._timers: dict[str | None, int] = {}
        self.shard = load(node.log.entries, new_shard)
        result = self._new_result()
        self.shard.loaded(result)
        self._append_and_schedule(result)

    def _new_result(self) -> GroupResult:
        return GroupResult(self._node.now_ms, self._node.time_ms, self._settings, self._image)

    def receive(self, source: str, message: Any) -> None:
        assert isinstance(message, Request)
        # Requests ride on TCP: one is not read twice, nor behind a later one of the same client,
        # whose older connections are closed. What the network doubles and delays is the rest.
        if message.number <= self._node.newest_seen.get(source, 0):
            return
        self._node.newest_seen[source] = message.number
        to = source, message.number
        result = self._new_result()
        try:
            value = message.operation(self.shard, result, to)
        except ApiError as error:
            self._node.send(source, Response(message.number, error.code))
            value = None
        self._append_and_schedule(result)
        if value is not None:  # it may rest on what is not committed yet
            self._reply_at(self._node.log.end, to, value)

    def tick(self) -> None:
        now_ms = self._node.now_ms
        for key in [key for key, at in self._timers.items() if at <= now_ms]:
            del self._timers[key]
            result = self._new_result()
            self.shard.timer(key, result)
            self._append_and_schedule(result)
        if self._timers:
            self._node.wake_at(min(self._timers.values()))

    def flushed(self, end: int) -> None:
        if self._leadership.epoch != self.epoch:
            return  # written, but not by the leader
        committed = self._leadership.committed
        committed += self._node.log.entries[len(committed) : end]
        due = [reply for reply in self._replies if reply[0] <= end]
        self._replies = [reply for reply in self._replies if reply[0] > end]
        for _, to, value in due:
            self._send(to, value)

    def resign(self) -> None:
        """Told at last that another one leads: everybody who waits is sent there."""
        waiting = [to for _, to, _ in self._replies]
        for to in (*waiting, *self.shard.abandoned()):
            self._send(to, ErrorCode.NOT_COORDINATOR)

    def _append_and_schedule(self, result: GroupResult) -> None:
        # One batch: a crash leaves all of an operation's records or none.
        batch = list(zip(result.records, result.encoded, strict=True))
        end = self._node.append([batch]) if batch else self._node.log.end
        for reply in result.replies:
            self._reply_at(end, reply.reply, reply.response)
        for key, at in result.timers:
            self._timers[key] = min(at, self._timers.get(key, at))
            self._node.wake_at(at)

    def _reply_at(self, end: int, to: object, value: Any) -> None:
        if end <= self._node.log.flushed and self._leadership.epoch == self.epoch:
            self._send(to, value)
        else:
            self._replies.append((end, to, value))

    def _send(self, to: object, value: Any) -> None:
        assert isinstance(to, tuple)
        source, number = to
        self._node.send(source, Response(number, value))


def load(entries: list[Any], new_shard: Callable[[], GroupShard] = GroupShard) -> GroupShard:
    """The shard that a log gives; some of its records are read from their bytes."""
    shard = new_shard()
    for position, (record, encoded) in enumerate(chain.from_iterable(entries)):
        if position % DECODED_ONE_IN == 0:
            again = decode(*encoded)
            assert again == record, f"{record} is read back as {again}"
            assert isinstance(again, GroupRecord)
        shard.replay(record)
    return shard


class Elections:
    """Chooses leaders: a new one whenever the old one dies, and now and then without a reason."""

    def __init__(
        self,
        kernel: Kernel,
        nodes: list[str],
        new_program: Callable[[NodeContext, Leadership], ShardProgram],
    ) -> None:
        self.leadership = Leadership()
        self._kernel = kernel
        self._nodes = nodes
        self._new_program = new_program
        self._random = kernel.streams("elections")
        self._down: set[str] = set()
        kernel.on_death = self._died
        for _ in range(2):
            self._kernel.at(self._random.random() * kernel.plan.seconds * 1000, self._move)

    def elect(self, host: str) -> None:
        """The node leads from now on; the old leader learns of it some time later."""
        kernel, leadership = self._kernel, self.leadership
        old, node = leadership.leader, kernel.host(host)
        tail = [] if old is None else old.log.entries[len(leadership.committed) :]
        leadership.epoch += 1
        leadership.leader = node
        if old is not None and old is not node and old.program is not None:
            old.after(self._random.random() * 1500, lambda: self._resign(old))
        if node.program is not None:  # the leader itself, or one that has not heard yet
            node.die()
        if old is not node:
            kept = tail[: self._random.randint(0, len(tail))]
            node.log.entries = [*leadership.committed, *kept]
        node.log.flushed = len(leadership.committed)
        kernel.note(f"elected {host} epoch={leadership.epoch} log_end={node.log.end}")
        node.start(self._new_program(node, leadership))

    def _move(self) -> None:
        """Another node leads, for no reason that the old one could see."""
        leader = self.leadership.leader
        choices = [
            host
            for host in self._nodes
            if host not in self._down and (leader is None or host != leader.host)
        ]
        if choices:
            self.elect(self._random.choice(choices))

    def _resign(self, node: NodeContext) -> None:
        program = node.program
        if node is not self.leadership.leader and isinstance(program, ShardProgram):
            node.die()
            program.resign()

    def _died(self, node: NodeContext, down: float) -> None:
        self._down.add(node.host)
        self._kernel.note(f"died {node.host}")
        now_ms = self._kernel.now_ms
        self._kernel.at(now_ms + down * 1000, lambda: self._down.discard(node.host))
        if node is self.leadership.leader:
            self._kernel.at(now_ms + self._random.random() * 600, self._replace)

    def _replace(self) -> None:
        leader = self.leadership.leader
        if leader is None or leader.is_up:
            return
        choices = [host for host in self._nodes if host not in self._down]
        if choices:
            self.elect(self._random.choice(choices))
        else:
            self._kernel.at(self._kernel.now_ms + 100, self._replace)
