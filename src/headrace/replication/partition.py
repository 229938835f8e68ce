"""One replica of one partition: the log below, and how far of it may be seen.

    produce --append--> log end ......... written
                        high watermark .. on every in-sync replica; readers stop here
                        last stable ..... below it every transaction has ended

With one replica the high watermark follows what this node has flushed, or, under Kafka's own
durability rule, what it has written. Whoever waits for the watermark (a produce with
acks=all, a fetch that found nothing) is called back when it moves; nothing polls.

Records that nobody waits for need not be flushed at once, so each request for a flush says on
whose behalf it is made.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.core.errors import ApiError, ErrorCode, OffsetOutOfRange
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.protocol.records.header import BatchHeader
from headrace.replication.settings import TopicSettings

logger = logging.getLogger(__name__)

# Called with NONE when the offset is committed, or with why it never will be.
CommitCallback = Callable[[ErrorCode], None]
# Asks for a flush of a partition, on behalf of somebody who waits for it or of nobody (None).
FlushRequest = Callable[["Partition", object | None], None]


class PartitionListener(Protocol):
    """Called each time more of a partition is visible, or it is gone; must not read or append.

    It may watch thousands of partitions, so it is given which of them and how much more.
    """

    def advanced(self, partition: "Partition", more_bytes: int) -> None: ...


class Partition:
    """The leader's view of a partition on this node.

    Invariant: log start <= high watermark <= log end, and the high watermark never moves back.
    """

    __slots__ = (
        "_commit_waiters",
        "_listeners",
        "_request_flush",
        "appended_bytes",
        "closed",
        "fetched_bytes",
        "fetched_messages",
        "first_new_offset",
        "high_watermark",
        "id",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "partition_epoch",
        "replicas",
        "settings",
        "topic_id",
        "visible_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog,
        settings: TopicSettings,
        *,
        request_flush: FlushRequest | None,
    ) -> None:
        """`request_flush` is called after each append, and when somebody waits for a flush;
        without it (Kafka's own durability rule) what is written counts as committed."""
        self.id = partition
        self.topic_id = topic_id
        self.log = log
        self.settings = settings
        # Set when the partition leaves this node; whoever still holds it must drop it.
        self.closed = False
        self.leader = NodeId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.partition_epoch = 0
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()
        # After a crash the tail that recovery found may still be in the page cache alone.
        self.high_watermark = log.log_end_offset if request_flush is None else log.flushed_offset
        # Both only grow; waiting fetches measure what became visible since they looked.
        self.appended_bytes = 0
        self.visible_bytes = 0
        # For the metrics: what has come in since the start begins here, and what has gone out.
        self.first_new_offset = log.log_end_offset
        self.fetched_bytes = 0
        self.fetched_messages = 0
        self._request_flush = request_flush
        self._commit_waiters: deque[tuple[Offset, CommitCallback, object]] | None = None
        # In the order in which they came; None if there are none.
        self._listeners: dict[PartitionListener, None] | None = None
        self.request_flush(self)

    def become_leader(
        self,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[NodeId],
        isr: Sequence[NodeId],
    ) -> None:
        """Take over what the metadata image says about this partition."""
        self.leader = leader
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.log.start_epoch(leader_epoch)
            logger.debug(
                "leading: partition=%s epoch=%d end_offset=%d",
                self.id,
                leader_epoch,
                self.log.log_end_offset,
            )
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)

    @property
    def last_stable_offset(self) -> Offset:
        """Equal to the high watermark until transactions exist."""
        return self.high_watermark

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose idea of the leader epoch differs from ours (KIP-320)."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(
        self, batches: Sequence[tuple[int, BatchHeader]], buffer: memoryview, acks: int
    ) -> AppendInfo:
        if acks == -1 and len(self.isr) < self.settings.min_insync_replicas:
            self._require_in_sync()
        info = self.log.append(batches, buffer, self.leader_epoch)
        if info.duplicate:
            return info
        self.appended_bytes += len(buffer)
        if self._request_flush is None:
            self._advance(self.log.log_end_offset, self.appended_bytes)
        else:
            # Whoever waits for acks=all says so next, by `when_committed`.
            self._request_flush(self, self._first_listener)
        return info

    def _require_in_sync(self) -> None:
        # As Kafka, which lowers the setting to the number of replicas: a topic with one replica
        # takes what a topic with three refuses as long as two of them are away.
        if len(self.isr) < min(self.settings.min_insync_replicas, len(self.replicas)):
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)

    @property
    def is_flushed(self) -> bool:
        """Whether everything appended is visible."""
        return self.high_watermark >= self.log.log_end_offset

    @property
    def unflushed_bytes(self) -> int:
        return self.appended_bytes - self.visible_bytes

    @property
    def flush_requester(self) -> object | None:
        """On whose behalf the next flush is; None if nobody waits for one."""
        if self._commit_waiters is not None:
            return self._commit_waiters[0][2]
        return self._first_listener

    @property
    def _first_listener(self) -> PartitionListener | None:
        return None if self._listeners is None else next(iter(self._listeners))

    def request_flush(self, requester: object) -> None:
        """`requester` will read to the end of the log: what is written there is wanted now."""
        if self._request_flush is not None and not self.is_flushed and self.log.failure is None:
            self._request_flush(self, requester)

    def flushed(self, offset: Offset, appended_bytes: int) -> None:
        """Everything below `offset` is on this node's disk; at least `appended_bytes` of it."""
        if offset > self.high_watermark:
            everything = offset >= self.log.log_end_offset
            self._advance(offset, self.appended_bytes if everything else appended_bytes)

    def close(self) -> None:
        """The topic is gone."""
        self.closed = True
        self.fail_waiters(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def fail_waiters(self, reason: ErrorCode) -> None:
        """What was appended will never be committed (the disk failed, or the topic is gone)."""
        waiters, self._commit_waiters = self._commit_waiters, None
        for _, call, _ in waiters or ():
            _call_waiter(call, reason)
        self.notify()

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log start up to `offset`; only committed records can be deleted.

        Not where compaction alone decides what goes.
        """
        if not self.settings.config.is_deleted and self.settings.config.is_compacted:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        if offset < 0 or offset > self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in [0, {self.high_watermark}]")
        self.log.advance_log_start(offset)
        return self.log.log_start_offset

    def when_committed(
        self, offset: Offset, call: CommitCallback, requester: object | None = None
    ) -> None:
        """Call once the high watermark has reached `offset`; offsets come in append order.

        `requester` (a connection) has its turn at the disk as others have theirs, however many
        partitions it waits for.
        """
        if self._commit_waiters is None:
            self._commit_waiters = deque()
        requester = call if requester is None else requester
        self._commit_waiters.append((offset, call, requester))
        if self._request_flush is not None:
            self._request_flush(self, requester)

    def add_listener(self, listener: PartitionListener) -> None:
        if self._listeners is None:
            self._listeners = {}
        self._listeners[listener] = None
        self.request_flush(listener)

    def remove_listener(self, listener: PartitionListener) -> None:
        if self._listeners is not None:
            self._listeners.pop(listener, None)
            if not self._listeners:
                self._listeners = None

    def _advance(self, offset: Offset, visible_bytes: int) -> None:
        self.high_watermark = offset
        more_bytes = visible_bytes - self.visible_bytes
        self.visible_bytes = visible_bytes
        waiters = self._commit_waiters
        if waiters is not None:
            while waiters and waiters[0][0] <= offset:
                _call_waiter(waiters.popleft()[1], ErrorCode.NONE)
            if not waiters:
                self._commit_waiters = None
        self.notify(more_bytes)

    def notify(self, more_bytes: int = 0) -> None:
        """Call everybody who waits here for more."""
        if self._listeners is not None:
            for listener in tuple(self._listeners):
                try:
                    listener.advanced(self, more_bytes)
                except Exception:
                    logger.exception("a listener failed: partition=%s", self.id)


def _call_waiter(call: CommitCallback, outcome: ErrorCode) -> None:
    """One waiter's mistake must not keep the others, or other partitions, from being called."""
    try:
        call(outcome)
    except Exception:
        logger.exception("a waiter failed: outcome=%s", outcome.name)
