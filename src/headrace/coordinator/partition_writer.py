"""The log of a shard: what a turn of the event loop decides is appended as one batch.

    operation --write--> records of this turn --append--> log --high watermark--> replies leave

Replies leave in order, each when everything decided before it is committed, so nobody is told
what a crash may take back. If an append fails, or what was appended will never be committed, or
the partition is no longer led here, the writer is done for: all who wait are refused. Its owner
builds the shard anew from the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

from headrace.coordinator.result import EncodedRecord, PendingReply, ReplyCallback, WaitingReply
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.core.shared_calls import call_each
from headrace.protocol.compression import Codec
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import parse_header
from headrace.replication.partition import ACKS_ALL, Partition

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1_000_000
"""A turn that decides more than this is appended in several batches."""

_NO_RESPONSE = HeartbeatResponse()
"""Any response: who waits for all that was written does not look at it."""

# What Kafka tells members when their coordinator's log fails.
_COORDINATOR_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class PartitionWriter:
    """Appends to one partition, in one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        leader_epoch: LeaderEpoch,
        codec: Codec,
        on_failure: Callable[[ErrorCode], None],
    ) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._codec = codec
        self._on_failure = on_failure
        self._full: list[BatchBuilder] = []
        self._batch = BatchBuilder()
        self._replies: list[PendingReply] = []
        # Replies whose records are appended and not committed, by the order of the appends.
        self._uncommitted: dict[int, list[PendingReply]] = {}
        self._appends = 0
        self._end = partition.log.log_end_offset
        self._scheduled = False
        self.failed = False

    def write(
        self, records: Sequence[EncodedRecord], replies: Sequence[PendingReply], time_ms: int
    ) -> None:
        """Append in this turn's batch; the replies leave when it is committed."""
        for reply, _ in replies:
            if isinstance(reply, WaitingReply):
                reply.decided()
        if self.failed:
            fail_replies(replies, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
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
        """Whether all that was written is committed."""
        return not self._scheduled and self._partition.is_committed(self._end)

    def when_committed(self, call: ReplyCallback) -> None:
        """Call once that is so, or with why it never will be."""
        replies = [PendingReply(call, _NO_RESPONSE)]
        if self._scheduled:
            self._replies += replies
        else:
            self._reply_when_committed(replies)

    def append_now(self) -> None:
        """What was decided in this turn so far is whole: it need not go with what failed."""
        if self._scheduled:
            self._append()

    def close(self, code: ErrorCode) -> None:
        """Write nothing more; nothing of what is not committed by now is answered.

        It may be committed all the same, by whoever leads the partition next.
        """
        self.failed = True
        waiting = [*self._uncommitted.values(), self._replies]
        self._uncommitted, self._replies = {}, []
        self._full, self._batch = [], BatchBuilder()
        fail_replies((reply for replies in waiting for reply in replies), code)

    def _append(self) -> None:
        if self.failed or not self._scheduled:
            return
        self._scheduled = False
        replies, self._replies = self._replies, []
        batches, self._full = [*self._full, self._batch], []
        self._batch = BatchBuilder()
        try:
            if self._partition.leader_epoch != self._leader_epoch:
                # What was decided in one epoch must not be written in another: somebody else
                # may have led and written in between.
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for builder in batches:
                data = builder.build(self._codec)
                with memoryview(data) as view:
                    info = self._partition.append([(0, parse_header(data))], view, ACKS_ALL)
                self._end = Offset(info.last_offset + 1)
        except HeadraceError as error:
            self._replies = replies
            self._fail(error.code)
        else:
            self._reply_when_committed(replies)

    def _reply_when_committed(self, replies: list[PendingReply]) -> None:
        if self.failed:
            fail_replies(replies, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._partition.is_committed(self._end):
            send_replies(replies)
        else:
            self._appends += 1
            self._uncommitted[self._appends] = replies
            self._partition.when_committed(self._end, partial(self._committed, self._appends))

    def _committed(self, append: int, outcome: ErrorCode) -> None:
        if outcome is not ErrorCode.NONE:
            self._fail(outcome)
        else:
            # Those of a writer that was closed are answered already.
            send_replies(self._uncommitted.pop(append, ()))

    def _fail(self, code: ErrorCode) -> None:
        if not self.failed:
            self.close(code)
            self._on_failure(code)


def send_replies(replies: Iterable[PendingReply]) -> None:
    call_each(
        logger, "a response", replies, lambda each: cast(ReplyCallback, each.reply)(each.response)
    )


def fail_replies(replies: Iterable[PendingReply], code: ErrorCode) -> None:
    """Tell those who wait that the coordinator could not keep its word."""
    error = ApiError(_COORDINATOR_ERRORS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    call_each(logger, "a refusal", replies, lambda each: cast(ReplyCallback, each.reply)(error))
