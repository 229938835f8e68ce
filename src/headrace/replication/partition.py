"""One replica of one partition: the log below, its role, and how far of it may be seen.

    produce --append--> log end ......... written; followers read up to here
                        high watermark .. on every in-sync replica; readers stop here
                        last stable ..... below it every transaction has ended

Its role is a `Leader`, which says how far the high watermark may move, or a `Follower`. What may
be seen, and by whom, is decided here and nowhere else. Whoever waits (a produce with acks=all, a
fetch that found nothing) is called back when an offset moves; nothing polls.

With one replica the high watermark follows what this node has flushed, or, under Kafka's own
durability rule, what it has written. Records that nobody waits for need not be flushed at once,
so each request for a flush says on whose behalf it is made.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, cast

from headrace.core.errors import ApiError, ErrorCode, OffsetOutOfRange
from headrace.core.files import FileRange
from headrace.core.ids import (
    NO_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    NodeId,
    Offset,
    TopicId,
    TopicPartition,
)
from headrace.log.leader_epochs import EpochEntry
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.log.producer_state import ProducerStates
from headrace.metadata.image import NO_LEADER, PartitionRegistration
from headrace.protocol.records.header import BatchHeader
from headrace.replication.follower import Follower
from headrace.replication.leader import Leader
from headrace.replication.reads import FetchIsolation, FetchPosition, ReadInfo
from headrace.replication.settings import TopicSettings
from headrace.replication.waiters import (
    CommitCallback,
    OffsetWaiters,
    PartitionListener,
    PartitionListeners,
)

logger = logging.getLogger(__name__)

# Asks for a flush of a partition, on behalf of somebody who waits for it or of nobody (None).
FlushRequest = Callable[["Partition", object | None], None]
ACKS_ALL: Final = -1
"""Of a produce: what is appended has to be on every replica in sync."""


class Partition:
    """See the module's text for the offsets.

    Invariant: log start <= last stable offset <= high watermark <= log end, and while the
    partition is open here neither of the two in the middle moves back.
    """

    __slots__ = (
        "_commit_waiters",
        "_flush_waiters",
        "_flushed_bytes",
        "_flushed_end",
        "_listeners",
        "_request_flush",
        "appended_bytes",
        "closed",
        "fetched_bytes",
        "fetched_messages",
        "first_new_offset",
        "high_watermark",
        "id",
        "last_stable_offset",
        "leader_epoch",
        "log",
        "role",
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
        high_watermark: Offset = NO_OFFSET,
    ) -> None:
        """`request_flush` is called after each append, and when somebody waits for a flush;
        without it (Kafka's own durability rule) what is written counts as flushed.
        `high_watermark` is what was known of it before the start."""
        self.id = partition
        self.topic_id = topic_id
        self.log = log
        self.settings = settings
        # Set when the partition leaves this node; whoever still holds it must drop it.
        self.closed = False
        self.leader_epoch = NO_EPOCH
        # After a crash the tail that recovery found may still be in the page cache alone.
        self._flushed_end = log.log_end_offset if request_flush is None else log.flushed_offset
        # No lower than the log start: records were deleted up to there because all have them.
        known = min(max(high_watermark, log.log_start_offset), self._flushed_end)
        self.high_watermark = self.last_stable_offset = known
        # Until the metadata says otherwise somebody else may lead it.
        self.role: Leader | Follower = Follower(
            NodeId(NO_LEADER), NO_EPOCH, flushed_end=self._flushed_end
        )
        # These only grow; waiting fetches measure what became visible since they looked.
        self.appended_bytes = 0
        self._flushed_bytes = 0
        self.visible_bytes = 0
        # For the metrics: what has come in since the start begins here, and what has gone out.
        self.first_new_offset = log.log_end_offset
        self.fetched_bytes = 0
        self.fetched_messages = 0
        self._request_flush = request_flush
        # None where nobody waits, as in most of many partitions.
        self._commit_waiters: OffsetWaiters | None = None
        self._flush_waiters: OffsetWaiters | None = None
        self._listeners: PartitionListeners[Partition] | None = None
        self.request_flush(self)

    def __str__(self) -> str:
        return str(self.id)

    # Roles

    @property
    def is_leader(self) -> bool:
        """Whether this node may be written to and read from."""
        return isinstance(self.role, Leader)

    def become_leader(self, registration: PartitionRegistration) -> None:
        """This node leads: take over what the metadata image says about this partition.

        The same epoch once more begins nothing, it may have other replicas or another ISR.
        """
        epoch, role = LeaderEpoch(registration.leader_epoch), self.role
        replicas = cast(tuple[NodeId, ...], registration.replicas)
        isr = cast(tuple[NodeId, ...], registration.isr)
        min_isr = self.settings.min_insync_replicas
        if isinstance(role, Leader) and role.epoch == epoch:
            high_watermark = role.registered(replicas, isr, min_isr)
        else:
            self.log.start_epoch(epoch)
            self.leader_epoch = epoch
            self.role = role = Leader(
                registration.leader,
                epoch,
                replicas=replicas,
                isr=isr,
                min_isr=min_isr,
                epoch_start=self.log.log_end_offset,
                end=self._flushed_end,
                high_watermark=self.high_watermark,
            )
            high_watermark = role.high_watermark
            logger.debug(
                "leading: partition=%s epoch=%d end_offset=%d",
                self.id,
                epoch,
                self.log.log_end_offset,
            )
        self._move_high_watermark(high_watermark)

    def become_follower(self, registration: PartitionRegistration) -> None:
        """Another node leads, or none. Its epochs come with its batches; what is in the log may
        have to be cut, so nobody waits for it any longer."""
        epoch = LeaderEpoch(registration.leader_epoch)
        led = isinstance(self.role, Leader)
        if led or self.leader_epoch != epoch:
            self.leader_epoch = epoch
            self.role = Follower(registration.leader, epoch, flushed_end=self._flushed_end)
            logger.debug("following: partition=%s epoch=%d", self.id, epoch)
        if led:
            self._end_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def close(self, reason: ErrorCode) -> None:
        """It leaves this node: deleted, moved to others, or its log cannot be used."""
        self.closed = True
        # Whoever still holds it can neither write to the log nor read from it: its files go.
        self.role = Follower(NodeId(NO_LEADER), self.leader_epoch, flushed_end=self._flushed_end)
        self._end_waits(reason)

    def update_settings(self, settings: TopicSettings) -> None:
        """The topic's configs, or the broker's, are others now."""
        self.settings = settings
        self.log.update_config(settings.log)
        role = self.role
        if isinstance(role, Leader):
            self._move_high_watermark(role.min_isr_changed(settings.min_insync_replicas))

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Refuse where this node does not lead, and a client whose idea of the leader epoch differs
        from ours (KIP-320)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not isinstance(self.role, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Writing

    def append(
        self, batches: Sequence[tuple[int, BatchHeader]], buffer: memoryview, acks: int
    ) -> AppendInfo:
        role = self.role
        if not isinstance(role, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and role.is_below_min_isr:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        info = self.log.append(batches, buffer, self.leader_epoch)
        if info.duplicate:
            return info
        size = len(buffer)
        self.appended_bytes += size
        if self._listeners is not None:
            self._listeners.advanced(FetchIsolation.LOG_END, self, size)
        if self._request_flush is None:
            self.flushed(self.log.log_end_offset, self.appended_bytes)
        else:
            # Whoever waits for acks=all says so next, by `when_committed`.
            listeners = self._listeners
            self._request_flush(self, None if listeners is None else listeners.first_consumer)
        return info

    def fetched_by(self, node: NodeId, offset: Offset) -> None:
        """A follower has everything below `offset`."""
        role = self.role
        if isinstance(role, Leader):
            self._move_high_watermark(role.fetched(node, offset))

    def delete_records_before(self, offset: Offset | None) -> Offset:
        """Move the log start up to `offset`, or without one to the high watermark; only committed
        records can be deleted.

        Not where compaction alone decides what goes.
        """
        self.require_leader()
        if not self.settings.config.is_deleted and self.settings.config.is_compacted:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        if offset is None:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in [0, {self.high_watermark}]")
        self.log.advance_log_start(offset)
        return self.log.log_start_offset

    # Reading

    def read(
        self,
        position: FetchPosition,
        isolation: FetchIsolation,
        max_bytes: int,
        *,
        at_least_one: bool,
        requester: object = None,
        replica: NodeId | None = None,
    ) -> ReadInfo:
        """Whole batches from the one that holds the position, as far as `isolation` lets see.

        `requester` is who reads: having read so far it comes back for what is written but not yet
        flushed, so that is flushed now. `replica` is the follower that reads, if one does.
        """
        self.require_leader(position.current_leader_epoch)
        start, _, last_epoch = position
        log = self.log
        diverging = None
        if last_epoch >= 0:
            epoch, end = log.end_offset_for_epoch(LeaderEpoch(last_epoch))
            if epoch < last_epoch or end < start:
                if epoch < 0:
                    raise OffsetOutOfRange(f"epoch {last_epoch} is not known")
                diverging = epoch, end
        visible = self.visible_end(isolation)
        found: FileRange | None = None
        behind = 0
        if diverging is None:
            found, behind = log.find(start, max_bytes, visible, at_least_one=at_least_one)
            if replica is not None:
                # Not before: until epoch and position have passed, what it has before that offset
                # may be of another log, and must not count towards what is committed.
                self.fetched_by(replica, start)
        if isolation and max(behind, start) >= visible:
            self.request_flush(requester)
        return ReadInfo(
            found,
            behind,
            diverging,
            self.high_watermark,
            self.last_stable_offset,
            log.log_start_offset,
        )

    def end_offset_for_epoch(self, epoch: LeaderEpoch, current_leader_epoch: int) -> EpochEntry:
        """The largest epoch not above `epoch`, and where it ended."""
        self.require_leader(current_leader_epoch)
        return self.log.end_offset_for_epoch(epoch)

    @property
    def size_bytes(self) -> int:
        """What its records take on this node, whether it leads or not."""
        return self.log.size_bytes

    @property
    def active_producers(self) -> ProducerStates:
        """What the leader remembers of those who write with an identity."""
        self.require_leader()
        return self.log.producers

    def count_fetched(self, messages: int, size: int) -> None:
        """Records of it have left."""
        self.fetched_messages += messages
        self.fetched_bytes += size

    def visible_end(self, isolation: FetchIsolation) -> Offset:
        """Where somebody who reads so has to stop."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.last_stable_offset
        return self.log.log_end_offset

    def latest_offset(self, isolation: FetchIsolation) -> Offset:
        """The end for somebody who asks where it is, and would take it for all there is.

        Raises while a new leader cannot say so, or the end would be seen to move back (KIP-207).
        """
        role = self.role
        if isolation and isinstance(role, Leader) and not role.knows_what_is_committed:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.visible_end(isolation)

    def is_committed(self, end: Offset) -> bool:
        """Whether everything below `end` is on every replica in sync."""
        return end <= self.high_watermark

    # Waiting

    @property
    def is_flushed(self) -> bool:
        """Whether everything appended is on this node's disk, or counts as if it were."""
        return self._request_flush is None or self._flushed_end >= self.log.log_end_offset

    @property
    def unflushed_bytes(self) -> int:
        return self.appended_bytes - self._flushed_bytes

    @property
    def flush_requester(self) -> object | None:
        """On whose behalf the next flush is; None if nobody waits for one."""
        waiters = self._flush_waiters or self._commit_waiters
        if waiters:
            return waiters.first_requester
        return None if self._listeners is None else self._listeners.first_consumer

    def request_flush(self, requester: object) -> None:
        """`requester` will read to the end of the log: what is written there is wanted now."""
        if self._request_flush is not None and not self.is_flushed and self.log.failure is None:
            self._request_flush(self, requester)

    def flushed(self, offset: Offset, appended_bytes: int) -> None:
        """Everything below `offset` is on this node's disk; at least `appended_bytes` of it."""
        if offset <= self._flushed_end:
            return
        self._flushed_end = offset
        everything = offset >= self.log.log_end_offset
        self._flushed_bytes = self.appended_bytes if everything else appended_bytes
        waiters = self._flush_waiters
        if waiters is not None:
            waiters.reached(offset)
            # One may have been added meanwhile.
            if not waiters:
                self._flush_waiters = None
        role = self.role
        if isinstance(role, Leader):
            self._move_high_watermark(role.flushed(offset))
        else:
            role.flushed(offset)

    def when_committed(
        self, offset: Offset, call: CommitCallback, requester: object | None = None
    ) -> None:
        """Call once the high watermark has reached `offset`; offsets come in append order.

        `requester` (a connection) has its turn at the disk as others have theirs, however many
        partitions it waits for.
        """
        if self._commit_waiters is None:
            self._commit_waiters = OffsetWaiters()
        self._wait(self._commit_waiters, offset, call, requester)

    def when_flushed(self, call: CommitCallback, requester: object | None = None) -> None:
        """Call once what is written now is on this node's disk, whatever other replicas have."""
        if self._flush_waiters is None:
            self._flush_waiters = OffsetWaiters()
        self._wait(self._flush_waiters, self.log.log_end_offset, call, requester)

    def _wait(
        self, waiters: OffsetWaiters, offset: Offset, call: CommitCallback, requester: object | None
    ) -> None:
        requester = call if requester is None else requester
        waiters.add(offset, call, requester)
        if self._request_flush is not None:
            self._request_flush(self, requester)

    def fail_waiters(self, reason: ErrorCode) -> None:
        """What was appended will never be committed: the disk failed."""
        failed = (self._flush_waiters, self._commit_waiters)
        self._flush_waiters = self._commit_waiters = None
        for waiters in failed:
            if waiters is not None:
                waiters.fail(reason)

    def _end_waits(self, reason: ErrorCode) -> None:
        """Nobody is served here any more; also those who wait for nothing but more records."""
        self.fail_waiters(reason)
        if self._listeners is not None:
            self._listeners.gone(self)

    def add_listener(
        self,
        listener: "PartitionListener[Partition]",
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> None:
        """Call it when more can be read under this isolation."""
        if self._listeners is None:
            self._listeners = PartitionListeners()
        self._listeners.add(listener, isolation)
        if isolation is not FetchIsolation.LOG_END:
            self.request_flush(listener)

    def remove_listener(self, listener: "PartitionListener[Partition]") -> None:
        if self._listeners is not None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._listeners = None

    # Offsets that move

    def _move_high_watermark(self, offset: Offset) -> None:
        if offset <= self.high_watermark:
            return
        visible_bytes = self._bytes_below(offset)
        more_bytes = visible_bytes - self.visible_bytes
        self.visible_bytes = visible_bytes
        self.high_watermark = offset
        waiters = self._commit_waiters
        if waiters is not None:
            waiters.reached(offset)
            if not waiters:
                self._commit_waiters = None
        if self._listeners is not None:
            self._listeners.advanced(FetchIsolation.HIGH_WATERMARK, self, more_bytes)
        # Until transactions exist there is none that could hold it back.
        self._move_last_stable_offset(offset, more_bytes)

    def _move_last_stable_offset(self, offset: Offset, more_bytes: int) -> None:
        self.last_stable_offset = offset
        if self._listeners is not None:
            self._listeners.advanced(FetchIsolation.TXN_COMMITTED, self, more_bytes)

    def _bytes_below(self, offset: Offset) -> int:
        """Of what was appended here: for certain at the log end and where a flush ended, and a
        guess between them."""
        end = self.log.log_end_offset
        if offset >= end:
            return self.appended_bytes
        if offset == self._flushed_end:
            return self._flushed_bytes
        unseen = self.appended_bytes - self.visible_bytes
        share = (offset - self.high_watermark) / (end - self.high_watermark)
        return self.visible_bytes + int(unseen * share)
