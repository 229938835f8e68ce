"""A shard's way to its log: what a turn of the event loop decides is appended as one batch.

    step --write--> records of this turn --append--> log --high watermark--> answers leave

Answers leave in order, each when everything decided before it is committed, so nobody is told
what a crash may take back. If an append fails, or what was appended will never be committed, the
journal is done for: all who wait are refused and its owner builds the shard anew from the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import Offset
from headrace.core.shared_calls import call_each
from headrace.groups.result import EncodedRecord, PendingReply
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import parse_header
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

ReplyCallback = Callable[[Message | ApiError], None]
"""What a token is here: called once, with the answer or with why there is none."""


class TimedReply:
    """A reply to a request that a group may let wait for its other members.

    Knows when that wait is over: once the group has decided, what is left is the coordinator's
    own time. `parked` and `resumed` are called around the wait, if there is one.
    """

    __slots__ = ("_is_decided", "_is_paused", "_pause_timer", "_reply", "_resume_timer")

    def __init__(
        self,
        reply: ReplyCallback,
        *,
        pause_timer: Callable[[], None],
        resume_timer: Callable[[], None],
    ) -> None:
        self._reply = reply
        self._pause_timer = pause_timer
        self._resume_timer = resume_timer
        self._is_paused = False
        self._is_decided = False

    def pause_timer_unless_decided(self) -> None:
        """The request has been handed to its group."""
        if not self._is_decided:
            self._is_paused = True
            self._pause_timer()

    def decided(self) -> None:
        """The group knows the answer."""
        self._is_decided = True
        if self._is_paused:
            self._is_paused = False
            self._resume_timer()

    def __call__(self, outcome: Message | ApiError) -> None:
        self.decided()
        self._reply(outcome)


BATCH_BYTES_MAX = 1_000_000
"""A turn that decides more than this is appended in several batches."""

ACKS_ALL = -1
_NO_RESPONSE = HeartbeatResponse()
"""Any answer: who waits for the journal to settle does not look at it."""

# What Kafka tells members when their coordinator's log fails.
_COORDINATOR_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class PartitionWriter:
    """Appends to one partition of `__consumer_offsets`."""

    def __init__(
        self, partition: Partition, codec: Codec, on_failure: Callable[[ErrorCode], None]
    ) -> None:
        self._partition = partition
        self._codec = codec
        self._on_failure = on_failure
        self._full: list[BatchBuilder] = []
        self._batch = BatchBuilder()
        self._replies: list[PendingReply] = []
        self._end = partition.log.log_end_offset
        self._scheduled = False
        self.failed = False

    def write(
        self, records: Iterable[EncodedRecord], replies: Sequence[PendingReply], time_ms: int
    ) -> None:
        """Append in this turn's batch; the answers leave when it is committed."""
        for reply, _ in replies:
            if isinstance(reply, TimedReply):
                reply.decided()
        batch = self._batch
        for key, value in records:
            if batch.size >= BATCH_BYTES_MAX:
                self._full.append(batch)
                batch = self._batch = BatchBuilder()
            batch.append(key, value, (), time_ms)
        if batch.record_count:
            self._replies += replies
            if not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._append)
        elif replies:
            self._reply_when_committed(list(replies))

    @property
    def is_committed(self) -> bool:
        """Whether all that was written is committed, or never will be."""
        return self.failed or (not self._scheduled and self._partition.is_committed(self._end))

    def when_committed(self, call: ReplyCallback) -> None:
        """Call once that is so."""
        replies = [PendingReply(call, _NO_RESPONSE)]
        if self._scheduled:
            self._replies += replies
        else:
            self._reply_when_committed(replies)

    def _append(self) -> None:
        self._scheduled = False
        if self.failed:
            return
        replies, self._replies = self._replies, []
        batches, self._full = [*self._full, self._batch], []
        self._batch = BatchBuilder()
        try:
            for builder in batches:
                data = builder.build(self._codec)
                with memoryview(data) as view:
                    info = self._partition.append([(0, parse_header(data))], view, ACKS_ALL)
                self._end = Offset(info.last_offset + 1)
        except HeadraceError as error:
            self._fail(error.code, replies)
        else:
            self._reply_when_committed(replies)

    def _reply_when_committed(self, replies: list[PendingReply]) -> None:
        if self._partition.is_committed(self._end):
            send_replies(replies)
        else:
            self._partition.when_committed(self._end, partial(self._committed, replies))

    def _committed(self, replies: list[PendingReply], outcome: ErrorCode) -> None:
        if outcome is ErrorCode.NONE:
            send_replies(replies)
        else:
            self._fail(outcome, replies)

    def _fail(self, code: ErrorCode, replies: list[PendingReply]) -> None:
        fail_replies([*replies, *self._replies], code)
        self._replies = []
        if not self.failed:
            self.failed = True
            self._on_failure(code)


def send_replies(replies: Iterable[PendingReply]) -> None:
    call_each(
        logger, "an answer", replies, lambda each: cast(ReplyCallback, each.reply)(each.response)
    )


def fail_replies(replies: Iterable[PendingReply], code: ErrorCode) -> None:
    """Tell those who wait that the coordinator could not keep its word."""
    error = ApiError(_COORDINATOR_ERRORS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    call_each(logger, "a refusal", replies, lambda each: cast(ReplyCallback, each.reply)(error))
