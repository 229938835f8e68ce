"""What a group's consumer reads and has read: where to begin, positions, commits.

`Fetcher` moves the cursors; here is what a group adds to it. A partition that is assigned
begins where the group has committed, or where `offset_reset` says.
"""

from collections.abc import Callable, Collection, Mapping

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.errors import CommitFailed, NoOffset
from headrace.client.core.fetched import Cursor
from headrace.client.core.fetcher import Fetcher
from headrace.client.core.group_models import CommittedOffset, GroupIdentity
from headrace.client.core.lookups import MissingTopic, refresh_metadata, resolve_topic_ids
from headrace.client.core.membership import FindTopics, FoundTopic
from headrace.client.core.models import EARLIEST, LATEST
from headrace.client.core.offset_operations import commit_offsets, fetch_offsets
from headrace.client.core.operations import ClientOperation, Session, retrying
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition

_RESET = {"earliest": EARLIEST, "latest": LATEST}
# One round of finding positions may not hold up the next, which may know more partitions.
_ROUND_MS = 5_000
_REFUSED = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class ConsumerState:
    """The partitions of one consumer, and the group's offsets in them."""

    def __init__(self, session: Session, settings: ConsumerSettings, channel: int) -> None:
        self._session = session
        self._settings = settings
        self.fetcher = Fetcher(session, settings.reader_settings(), channel)
        self._next_update_ms = 0.0
        self._failed_rounds = 0
        self._commit_at_ms = 0.0
        self._committed: dict[TopicPartition, CommittedOffset] = {}

    # -- partitions come and go

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Read these too, from the group's offsets unless somebody seeks."""
        self.fetcher.add(partitions)
        self._next_update_ms = 0.0

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self.fetcher.remove(partitions)
        for partition in partitions:
            self._committed.pop(partition, None)

    # -- where to begin

    def needs_positions(self, now_ms: float) -> bool:
        """Whether `update_positions` could help some partition on."""
        if now_ms < self._next_update_ms:
            return False
        return any(self._lacks_position(cursor, now_ms) for cursor in self.fetcher.cursors)

    def next_position_update_ms(self, now_ms: float) -> float:
        """When positions may be looked for again; infinity if that is not what is waited for."""
        return self._next_update_ms if self._next_update_ms > now_ms else float("inf")

    def _lacks_position(self, cursor: Cursor, now_ms: float) -> bool:
        if cursor.position is None:
            return cursor.error is None
        cluster, age = self._session.cluster, self._session.settings.metadata_age_ms_max
        topic = cursor.partition.topic
        return cluster.leader(cursor.partition) is None or cluster.is_stale(topic, now_ms, age)

    def update_positions(self, identity: GroupIdentity) -> ClientOperation[None]:
        """One round: leaders, committed offsets, then resets; what fails is tried again later."""
        session = self._session
        self._next_update_ms = session.now_ms() + session.settings.retry_backoff_ms_max
        yield from self._find_leaders()
        yield from self._start_at_committed(identity)
        cluster = session.cluster
        wanted = self.fetcher.unresolved_offsets
        known = {each: spec for each, spec in wanted.items() if cluster.leader(each) is not None}
        yield from self.fetcher.resolve_offsets(known, timeout_ms=_ROUND_MS)
        now_ms = session.now_ms()
        is_done = not any(self._lacks_position(cursor, now_ms) for cursor in self.fetcher.cursors)
        # A topic may stay without leader, or be gone, for as long as we are subscribed to it.
        self._failed_rounds = 0 if is_done else self._failed_rounds + 1
        self._next_update_ms = now_ms
        if not is_done:
            self._next_update_ms += session.backoff.delay_ms(self._failed_rounds)

    def _find_leaders(self) -> ClientOperation[None]:
        session, age = self._session, self._session.settings.metadata_age_ms_max
        now_ms, cluster = session.now_ms(), session.cluster
        topics = {
            each.topic
            for each in self.fetcher.partitions
            if cluster.leader(each) is None or cluster.is_stale(each.topic, now_ms, age)
        }
        if topics:
            yield from refresh_metadata(session, topics)

    def _start_at_committed(self, identity: GroupIdentity) -> ClientOperation[None]:
        specs = self.fetcher.unresolved_offsets
        waiting = {
            cursor.partition: (cursor, cursor.generation)
            for cursor in self.fetcher.cursors
            if cursor.position is None and cursor.error is None and cursor.partition not in specs
        }
        if not waiting:
            return
        found = yield from fetch_offsets(
            self._session, self._settings.group_id, list(waiting), identity, timeout_ms=_ROUND_MS
        )
        still_read = set(map(id, self.fetcher.cursors))
        for partition, (cursor, generation) in waiting.items():
            if id(cursor) not in still_read or cursor.generation != generation:
                continue  # taken away or moved meanwhile
            self._start(cursor, found.get(partition))

    def _start(self, cursor: Cursor, committed: CommittedOffset | None) -> None:
        partition, reset = cursor.partition, _RESET.get(self._settings.offset_reset)
        if committed is not None:
            cursor.move(committed.offset, committed.leader_epoch)
            self._committed[partition] = committed
        elif reset is not None:
            self.fetcher.seek(partition, reset)
        else:
            group = self._settings.group_id
            cursor.error = NoOffset(f"group {group!r} has no offset for {partition}")

    # -- positions and commits

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offset after the last record handed out, by partition; unknown ones are left out."""
        return {
            cursor.partition: CommittedOffset(cursor.position, cursor.leader_epoch)
            for cursor in self.fetcher.cursors
            if cursor.position is not None
            and (partitions is None or cursor.partition in partitions)
        }

    def uncommitted(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Positions that differ from what this consumer knows to be committed."""
        known = self._committed
        return {
            partition: place
            for partition, place in self.positions(partitions).items()
            if partition not in known or known[partition].offset != place.offset
        }

    def is_commit_due(self, now_ms: float) -> bool:
        """Whether it is time for an automatic commit; the next is an interval later."""
        if not self._settings.auto_commit or now_ms < self._commit_at_ms:
            return False
        self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
        return True

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        identity: Callable[[], GroupIdentity],
        refused: Callable[[GroupIdentity, HeadraceError], None],
        *,
        timeout_ms: float | None = None,
    ) -> ClientOperation[None]:
        """Commit until it is done or refused; `identity` is asked anew for every attempt.

        `refused` hears who was refused and why: by then the member may be another.
        """
        left = dict(offsets)
        group = self._settings.group_id
        held = self._cursors_of(left)
        tries = 0

        def attempt() -> ClientOperation[None]:
            nonlocal tries
            tries += 1
            if tries > 1 and self._cursors_of(left) != {each: held[each] for each in left}:
                # The broker's refusal was the fence that keeps us from overwriting what the new
                # owner has committed; under our new epoch it would let us through.
                raise CommitFailed(
                    ErrorCode.STALE_MEMBER_EPOCH, "partitions have changed hands meanwhile"
                )
            trying = dict(left)
            member = identity()
            failures = yield from commit_offsets(self._session, group, trying, member)
            for partition, position in trying.items():
                if partition not in failures:
                    self._committed[partition] = position
                    del left[partition]
            if failures:
                errors = map(_commit_error, failures.values())
                error = min(errors, key=lambda each: each.retriable)
                if isinstance(error, CommitFailed):
                    refused(member, error)
                raise error

        if left:
            yield from retrying(self._session, attempt, timeout_ms=timeout_ms)

    def _cursors_of(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Cursor | None]:
        """A partition that went and came back has another cursor than before."""
        cursors = {cursor.partition: cursor for cursor in self.fetcher.cursors}
        return {partition: cursors.get(partition) for partition in partitions}


class _StaleEpoch(ApiError):
    """The broker has a newer epoch for us than we knew of: the next heartbeat brings it."""

    @property
    def retriable(self) -> bool:
        return True


def _commit_error(error: HeadraceError) -> HeadraceError:
    if error.code is ErrorCode.STALE_MEMBER_EPOCH:
        return _StaleEpoch(error.code, error.message)
    if error.code in _REFUSED:
        return CommitFailed(error.code, error.message)
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return MissingTopic(error.code, error.message)
    return error


def find_topics(session: Session, wanted: FindTopics) -> ClientOperation[list[FoundTopic]]:
    """What a membership wants to know of topics; those that do not exist are left out."""
    cluster = session.cluster
    by_id = {state.topic_id: state.name for state in cluster.topics.values()}
    if wanted.ids:
        unknown = [topic_id for topic_id in wanted.ids if topic_id not in by_id]
        if unknown:
            yield from resolve_topic_ids(session, unknown)
        found = [state for state in cluster.topics.values() if state.topic_id in wanted.ids]
    elif wanted.names is None:
        response = yield from refresh_metadata(session, None)
        names = {topic.name for topic in response.topics}
        found = [state for state in cluster.topics.values() if state.name in names]
    else:
        yield from refresh_metadata(session, wanted.names)
        found = [cluster.topics[name] for name in sorted(wanted.names) if name in cluster.topics]
    return [
        FoundTopic(each.name, each.topic_id, len(each.partitions), each.is_internal)
        for each in found
    ]
