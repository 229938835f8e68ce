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

# Told NONE when the offset is committed, or why it never will be.
CommitCallback = Callable[[ErrorCode], None]
# Asks for a flush of a partition, on behalf of somebody who waits for it or of nobody (None).
FlushRequest = Callable[["Partition", object | None], None]


class Watcher(Protocol):
    """Told each time a partition shows more; must only take note, not read or append."""

    def advanced(self) -> None: ...


class Partition:
    """The leader's view of a partition on this node.

    Invariant: log start <= high watermark <= log end, and the high watermark never moves back.
    """

    __slots__ = (
        "_commit_waiters",
        "_on_dirty",
        "_watchers",
        "appended_bytes",
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
        "retired",
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
        on_dirty: FlushRequest | None,
    ) -> None:
        """`on_dirty` is told after each append, and when somebody begins to wait for a flush;
        without it (Kafka's own durability rule) what is written counts as committed."""
        self.id = partition
        self.topic_id = topic_id
        self.log = log
        self.settings = settings
        # Set when the partition leaves this node; whoever still holds it must let go.
        self.retired = False
        self.leader = NodeId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.partition_epoch = 0
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()
        # After a crash the tail that recovery found may still be in the page cache alone.
        self.high_watermark = log.log_end_offset if on_dirty is None else log.flushed_offset
        # Both only grow; waiting fetches measure what became visible since they looked.
        self.appended_bytes = 0
        self.visible_bytes = 0
        # For the metrics: what has come in since the start begins here, and what has gone out.
        self.first_new_offset = log.log_end_offset
        self.fetched_bytes = 0
        self.fetched_messages = 0
        self._on_dirty = on_dirty
        self._commit_waiters: deque[tuple[Offset, CommitCallback, object]] | None = None
        self._watchers: dict[Watcher, None] | None = None
        self.request_flush(self)

    def lead(
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
        if self._on_dirty is None:
            self._advance(self.log.log_end_offset, self.appended_bytes)
        else:
            # Whoever waits for acks=all says so next, by `when_committed`.
            self._on_dirty(self, self._reader)
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
    def asker(self) -> object | None:
        """On whose behalf the next flush is; None if nobody waits for one."""
        if self._commit_waiters is not None:
            return self._commit_waiters[0][2]
        return self._reader

    @property
    def _reader(self) -> object | None:
        """One of those who wait for more, if any."""
        return None if self._watchers is None else next(iter(self._watchers))

    def request_flush(self, asker: object) -> None:
        """`asker` will read to the end of the log: what is written there is wanted now."""
        if self._on_dirty is not None and not self.is_flushed and self.log.failure is None:
            self._on_dirty(self, asker)

    def flushed(self, offset: Offset, appended_bytes: int) -> None:
        """Everything below `offset` is on this node's disk; at least `appended_bytes` of it."""
        if offset > self.high_watermark:
            everything = offset >= self.log.log_end_offset
            self._advance(offset, self.appended_bytes if everything else appended_bytes)

    def retire(self) -> None:
        """The topic is gone."""
        self.retired = True
        self.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def give_up(self, reason: ErrorCode) -> None:
        """What was appended will never be committed (the disk failed, or the topic is gone)."""
        waiters, self._commit_waiters = self._commit_waiters, None
        for _, call, _ in waiters or ():
            _tell(call, reason)
        self.wake()

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
        self, offset: Offset, call: CommitCallback, asker: object | None = None
    ) -> None:
        """Call once the high watermark has reached `offset`; offsets come in append order.

        `asker` (a connection) has its turn at the disk as other askers have theirs, however many
        partitions it waits for.
        """
        if self._commit_waiters is None:
            self._commit_waiters = deque()
        asker = call if asker is None else asker
        self._commit_waiters.append((offset, call, asker))
        if self._on_dirty is not None:
            self._on_dirty(self, asker)

    def watch(self, watcher: Watcher) -> None:
        if self._watchers is None:
            self._watchers = {}
        self._watchers[watcher] = None
        self.request_flush(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if self._watchers is not None:
            self._watchers.pop(watcher, None)
            if not self._watchers:
                self._watchers = None

    def _advance(self, offset: Offset, visible_bytes: int) -> None:
        self.high_watermark = offset
        self.visible_bytes = visible_bytes
        waiters = self._commit_waiters
        if waiters is not None:
            while waiters and waiters[0][0] <= offset:
                _tell(waiters.popleft()[1], ErrorCode.NONE)
            if not waiters:
                self._commit_waiters = None
        self.wake()

    def wake(self) -> None:
        """Tell everybody who waits here to look again."""
        if self._watchers is not None:
            for watcher in tuple(self._watchers):
                try:
                    watcher.advanced()
                except Exception:
                    logger.exception("a watcher failed: partition=%s", self.id)


def _tell(call: CommitCallback, outcome: ErrorCode) -> None:
    """One waiter's mistake must not keep the others, or other partitions, from being told."""
    try:
        call(outcome)
    except Exception:
        logger.exception("a waiter failed: outcome=%s", outcome.name)
