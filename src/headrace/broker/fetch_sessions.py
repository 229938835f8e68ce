"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A session remembers, per partition, what the client asks for and what it was last told; an
incremental answer carries only partitions that have something new. The cache is bounded, in
sessions and in partitions of all of them, since they outlive their connections: a new session may
push out one that has been idle for a while, or is turned away (the client then simply goes on
with full fetches).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID, TopicId

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# Partitions that all sessions together may remember: some three hundred bytes each.
PARTITIONS_MAX: Final = 250_000


class PartitionKey(NamedTuple):
    """A partition as one client names it: by id (fetch v13 and later) or by name."""

    topic_id: TopicId
    topic: str
    partition: int


class FetchPartitionState:
    """What a client wants of one partition, and what it was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "last_sent_high_watermark",
        "last_sent_log_start_offset",
        "name_seen",
        "partition_max_bytes",
    )

    def __init__(
        self,
        key: PartitionKey,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.key = key
        self.fetch_offset = fetch_offset
        self.partition_max_bytes = partition_max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        # The topic's name when its id was last known.
        self.name_seen = ""
        self.last_sent_high_watermark = -1
        self.last_sent_log_start_offset = -1

    def update(self, other: "FetchPartitionState") -> None:
        """Take over a changed request for the same partition."""
        self.fetch_offset = other.fetch_offset
        self.partition_max_bytes = other.partition_max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch

    def take_changes(self, has_data: bool, high_watermark: int, log_start_offset: int) -> bool:
        """Whether this must be in an incremental answer; remembers that it was told."""
        news = (
            has_data
            or high_watermark != self.last_sent_high_watermark
            or log_start_offset != self.last_sent_log_start_offset
        )
        self.last_sent_high_watermark = high_watermark
        self.last_sent_log_start_offset = log_start_offset
        return news


class FetchSession:
    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: float) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        # In the order in which they are served; whoever got data goes to the end (fairness).
        self.partitions: dict[PartitionKey, FetchPartitionState] = {}

    def rotate(self, served: Iterable[PartitionKey]) -> None:
        for key in served:
            # A later request of the session may have let go of it while this one waited.
            if key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)


class FetchPlan(NamedTuple):
    """What to read for one fetch request, and how to shape the answer."""

    partitions: list[FetchPartitionState]
    session: FetchSession | None
    incremental: bool


class FetchSessions:
    """All sessions of this node, at most `slots` of them, with `partitions_max` in all."""

    def __init__(
        self, slots: int, eviction_ms: float = 120_000, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._partitions_left = partitions_max
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        wanted: list[FetchPartitionState],
        forgotten: list[PartitionKey],
        *,
        uses_topic_ids: bool,
        new_id: int,
        now_ms: float,
    ) -> FetchPlan:
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(self._sessions.get(session_id))
            session = None
            if epoch == INITIAL_EPOCH and wanted:
                session = self._create(new_id, wanted, uses_topic_ids, now_ms)
            return FetchPlan(wanted, session, incremental=False)
        return self._continue(session_id, epoch, wanted, forgotten, uses_topic_ids, now_ms)

    def _continue(
        self,
        session_id: int,
        epoch: int,
        wanted: list[FetchPartitionState],
        forgotten: list[PartitionKey],
        uses_topic_ids: bool,
        now_ms: float,
    ) -> FetchPlan:
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        # Also of a request that names nothing: the keys it would go on with are not its own.
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        for partition in wanted:
            known = session.partitions.get(partition.key)
            if known is None:
                session.partitions[partition.key] = partition
            else:
                known.update(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions_left -= len(session.partitions) - before
        if not session.partitions:
            self._drop(session)
            return FetchPlan([], None, incremental=False)
        if len(session.partitions) > before and self._partitions_left < 0:
            # It has outgrown the cache: the client asks for a new one, or goes on without.
            self._drop(session)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchPlan(list(session.partitions.values()), session, incremental=True)

    def _create(
        self, new_id: int, wanted: list[FetchPartitionState], uses_topic_ids: bool, now_ms: float
    ) -> FetchSession | None:
        if not self._make_room(len(wanted), now_ms):
            return None
        while new_id == NO_SESSION or new_id in self._sessions:
            new_id = new_id % _EPOCH_MAX + 1
        session = FetchSession(new_id, uses_topic_ids, now_ms)
        session.partitions = {partition.key: partition for partition in wanted}
        self._partitions_left -= len(session.partitions)
        self._sessions[new_id] = session
        return session

    def _make_room(self, size: int, now_ms: float) -> bool:
        """For a session of so many partitions; False if there is none."""
        while self._partitions_left < size:
            oldest = self._idle(now_ms)
            if oldest is None:
                return False
            self._drop(oldest)
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        gives_way = self._idle(now_ms)
        if gives_way is None:
            gives_way = min(self._sessions.values(), key=lambda session: len(session.partitions))
            # Only a session that saves more than it costs may push out a live one.
            if len(gives_way.partitions) >= size:
                return False
        self._drop(gives_way)
        return True

    def _idle(self, now_ms: float) -> FetchSession | None:
        """The least recently used session, if it has been idle long enough."""
        oldest = next(iter(self._sessions.values()), None)
        is_idle = oldest is not None and now_ms - oldest.last_used_ms > self._eviction_ms
        return oldest if is_idle else None

    def _drop(self, session: FetchSession | None) -> None:
        if session is not None:
            del self._sessions[session.id]
            self._partitions_left += len(session.partitions)


def key_of(topic_id: TopicId, topic: str, partition: int, *, uses_topic_ids: bool) -> PartitionKey:
    if uses_topic_ids:
        return PartitionKey(topic_id, "", partition)
    return PartitionKey(NO_TOPIC_ID, topic, partition)
