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
from headrace.groups.step import Answer, Write
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import parse_header
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

Reply = Callable[[Message | ApiError], None]
"""What a token is here: called once, with the answer or with why there is none."""


class PatientReply:
    """A reply to a request that a group may let wait for its other members.

    Knows when that wait is over: once the group has decided, what is left is the coordinator's
    own time. `parked` and `resumed` are called around the wait, if there is one.
    """

    __slots__ = ("_is_decided", "_is_parked", "_parked", "_reply", "_resumed")

    def __init__(
        self, reply: Reply, *, parked: Callable[[], None], resumed: Callable[[], None]
    ) -> None:
        self._reply = reply
        self._parked = parked
        self._resumed = resumed
        self._is_parked = False
        self._is_decided = False

    def park_unless_decided(self) -> None:
        """The request has been handed to its group."""
        if not self._is_decided:
            self._is_parked = True
            self._parked()

    def decided(self) -> None:
        """The group knows the answer."""
        self._is_decided = True
        if self._is_parked:
            self._is_parked = False
            self._resumed()

    def __call__(self, outcome: Message | ApiError) -> None:
        self.decided()
        self._reply(outcome)


BATCH_BYTES_MAX = 1_000_000
"""A turn that decides more than this is appended in several batches."""

ACKS_ALL = -1
_SETTLED = HeartbeatResponse()
"""Any answer: who waits for the journal to settle does not look at it."""

# What Kafka tells members when their coordinator's log fails.
_REFUSALS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Journal:
    """Appends to one partition of `__consumer_offsets`."""

    def __init__(
        self, partition: Partition, codec: Codec, on_failure: Callable[[ErrorCode], None]
    ) -> None:
        self._partition = partition
        self._codec = codec
        self._on_failure = on_failure
        self._full: list[BatchBuilder] = []
        self._batch = BatchBuilder()
        self._answers: list[Answer] = []
        self._end = partition.log.log_end_offset
        self._scheduled = False
        self.failed = False

    def write(self, writes: Iterable[Write], answers: Sequence[Answer], time_ms: int) -> None:
        """Append in this turn's batch; the answers leave when it is committed."""
        for token, _ in answers:
            if isinstance(token, PatientReply):
                token.decided()
        batch = self._batch
        for write in writes:
            key, value = write.stored
            if batch.size >= BATCH_BYTES_MAX:
                self._full.append(batch)
                batch = self._batch = BatchBuilder()
            batch.append(key, value, (), time_ms)
        if batch.record_count:
            self._answers += answers
            if not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._append)
        elif answers:
            self._let_go(list(answers))

    @property
    def is_settled(self) -> bool:
        """Whether all that was written is committed, or never will be."""
        return self.failed or (not self._scheduled and self._partition.high_watermark >= self._end)

    def when_settled(self, call: Reply) -> None:
        """Call once that is so."""
        answers = [Answer(call, _SETTLED)]
        if self._scheduled:
            self._answers += answers
        else:
            self._let_go(answers)

    def _append(self) -> None:
        self._scheduled = False
        if self.failed:
            return
        answers, self._answers = self._answers, []
        batches, self._full = [*self._full, self._batch], []
        self._batch = BatchBuilder()
        try:
            for builder in batches:
                data = builder.build(self._codec)
                with memoryview(data) as view:
                    info = self._partition.append([(0, parse_header(data))], view, ACKS_ALL)
                self._end = Offset(info.last_offset + 1)
        except HeadraceError as error:
            self._fail(error.code, answers)
        else:
            self._let_go(answers)

    def _let_go(self, answers: list[Answer]) -> None:
        if self._partition.high_watermark >= self._end:
            send(answers)
        else:
            self._partition.when_committed(self._end, partial(self._committed, answers))

    def _committed(self, answers: list[Answer], outcome: ErrorCode) -> None:
        if outcome is ErrorCode.NONE:
            send(answers)
        else:
            self._fail(outcome, answers)

    def _fail(self, code: ErrorCode, answers: list[Answer]) -> None:
        refuse([*answers, *self._answers], code)
        self._answers = []
        if not self.failed:
            self.failed = True
            self._on_failure(code)


def send(answers: Iterable[Answer]) -> None:
    call_each(logger, "an answer", answers, lambda each: cast(Reply, each.token)(each.response))


def refuse(answers: Iterable[Answer], code: ErrorCode) -> None:
    """Tell those who wait that the coordinator could not keep its word."""
    error = ApiError(_REFUSALS.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    call_each(logger, "a refusal", answers, lambda each: cast(Reply, each.token)(error))
