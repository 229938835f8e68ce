"""What an operation on a shard is given, and what it comes to: records, replies and timers."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from headrace.core.errors import ApiError
from headrace.protocol.message import Message

R = TypeVar("R")

Reply = object
"""Whoever waits for a response; a shard only carries it around. For the runtime it is a
`ReplyCallback`."""

ReplyCallback = Callable[[Message | ApiError], None]
"""Called once, with the response or with why there is none."""

EncodedRecord = tuple[bytes, bytes | None]
"""Key and value as they are appended."""

TimerKey = str | None
"""What a shard is to look at when its time has come: one of its keys, or the shard as a whole."""


class WaitingReply:
    """A reply that wants to know when its response is decided, which is before it is committed."""

    __slots__ = ()

    def decided(self) -> None:
        raise NotImplementedError

    def __call__(self, outcome: Message | ApiError) -> None:
        raise NotImplementedError


class PendingReply(NamedTuple):
    reply: Reply
    response: Message


class Result(Generic[R]):
    """Collects records, replies and timers; the replies leave once the records are committed.

    It is handed in and not returned, so that a decision that fails half way is known by what it
    has come to: nobody whom it was about to answer is left waiting.

    A shard changes its state while it decides. Records are encoded when they are handed over, all
    of a call or none, and what cannot be encoded raises: so whoever appends first and changes the
    state then leaves no trace of a decision that cannot be written.
    """

    __slots__ = ("_encode", "encoded", "now_ms", "records", "replies", "time_ms", "timers")

    def __init__(self, encode: Callable[[R], EncodedRecord], now_ms: int, time_ms: int) -> None:
        """`now_ms` is monotonic, for deadlines; `time_ms` the wall clock, for what is written."""
        self._encode = encode
        self.now_ms = now_ms
        self.time_ms = time_ms
        self.records: list[R] = []
        self.encoded: list[EncodedRecord] = []
        """`records` as they are appended."""
        self.replies: list[PendingReply] = []
        self.timers: list[tuple[TimerKey, int]] = []

    def append(self, *records: R) -> None:
        """Append these; the caller brings them into the state as soon as this returns."""
        encoded = [self._encode(record) for record in records]
        self.records += records
        self.encoded += encoded

    def reply(self, reply: Reply, response: Message) -> None:
        self.replies.append(PendingReply(reply, response))

    def schedule(self, key: TimerKey, deadline_ms: int | None) -> None:
        """Be called by `timer(key)` at this monotonic time or before; None asks for nothing."""
        if deadline_ms is not None:
            self.timers.append((key, deadline_ms))

    @property
    def is_empty(self) -> bool:
        """Whether it has neither records nor replies, so that nothing happened."""
        return not self.records and not self.replies
