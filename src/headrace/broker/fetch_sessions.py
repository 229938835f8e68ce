"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A session remembers, per partition, what the client asks for and what it was last told; an
incremental answer carries only partitions that have something new. The cache is bounded: a
new session may push out one that has been idle for a while, or is turned away (the client then
simply goes on with full fetches).
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID, TopicId

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition as one client names it: by id (fetch v13 and later) or by name."""

    topic_id: TopicId
    topic: str
    partition: int


class WantedPartition:
    """What a client wants of one partition, and what it was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "name_seen",
        "partition_max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
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
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def ask(self, other: "WantedPartition") -> None:
        """Take over a changed request for the same partition."""
        self.fetch_offset = other.fetch_offset
        self.partition_max_bytes = other.partition_max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch

    def is_news(self, has_data: bool, high_watermark: int, log_start_offset: int) -> bool:
        """Whether this must be in an incremental answer; remembers that it was told."""
        news = (
            has_data
            or high_watermark != self.told_high_watermark
            or log_start_offset != self.told_log_start_offset
        )
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return news


class Session:
    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: float) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        # In the order in which they are served; whoever got data goes to the end (fairness).
        self.partitions: dict[PartitionKey, WantedPartition] = {}

    def rotate(self, served: Iterable[PartitionKey]) -> None:
        for key in served:
            # A later request of the session may have let go of it while this one waited.
            if key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)


class Plan(NamedTuple):
    """What to read for one fetch request, and how to shape the answer."""

    partitions: list[WantedPartition]
    session: Session | None
    incremental: bool


class FetchSessions:
    """All sessions of this node, at most `slots` of them."""

    def __init__(self, slots: int, eviction_ms: float = 120_000) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, Session] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        wanted: list[WantedPartition],
        forgotten: list[PartitionKey],
        *,
        uses_topic_ids: bool,
        new_id: int,
        now_ms: float,
    ) -> Plan:
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = None
            if epoch == INITIAL_EPOCH and wanted:
                session = self._create(new_id, len(wanted), uses_topic_ids, now_ms)
            if session is not None:
                session.partitions = {partition.key: partition for partition in wanted}
            return Plan(wanted, session, incremental=False)
        return self._continue(session_id, epoch, wanted, forgotten, uses_topic_ids, now_ms)

    def _continue(
        self,
        session_id: int,
        epoch: int,
        wanted: list[WantedPartition],
        forgotten: list[PartitionKey],
        uses_topic_ids: bool,
        now_ms: float,
    ) -> Plan:
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        # Also of a request that names nothing: the keys it would go on with are not its own.
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for partition in wanted:
            known = session.partitions.get(partition.key)
            if known is None:
                session.partitions[partition.key] = partition
            else:
                known.ask(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self._sessions[session_id]
            return Plan([], None, incremental=False)
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return Plan(list(session.partitions.values()), session, incremental=True)

    def _create(
        self, new_id: int, size: int, uses_topic_ids: bool, now_ms: float
    ) -> Session | None:
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return None
        while new_id == NO_SESSION or new_id in self._sessions:
            new_id = new_id % _EPOCH_MAX + 1
        session = Session(new_id, uses_topic_ids, now_ms)
        self._sessions[new_id] = session
        return session

    def _evict(self, size: int, now_ms: float) -> bool:
        """Make room if the least recently used session has been idle long enough."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= self._eviction_ms:
            smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
            # Only a session that saves more than it costs may push out a live one.
            if len(smallest.partitions) >= size:
                return False
            oldest = smallest
        del self._sessions[oldest.id]
        return True


def key_of(topic_id: TopicId, topic: str, partition: int, *, uses_topic_ids: bool) -> PartitionKey:
    if uses_topic_ids:
        return PartitionKey(topic_id, "", partition)
    return PartitionKey(NO_TOPIC_ID, topic, partition)
