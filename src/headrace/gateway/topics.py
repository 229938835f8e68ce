"""Topics as the gateway looks them up: quickly when known, with patience when just mentioned."""

import asyncio
from typing import Final

from headrace.client.aio.client import AsyncClient
from headrace.client.core.cluster import TopicState
from headrace.client.core.lookups import MissingTopic, refresh_metadata, topic_error
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId, TopicPartition

_FIRST_PAUSE_MS: Final = 2
_LONGEST_PAUSE_MS: Final = 200
# What a broker says of a topic that may be there in a moment.
_BEING_CREATED: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)


class Topics:
    """Partitions and leaders, from the client's cache wherever it is fresh."""

    def __init__(self, client: AsyncClient, lookup_ms: int) -> None:
        self._client = client
        self._lookup_ms = lookup_ms

    def known(self, topic: str) -> TopicState | None:
        """The topic, if nothing has to be asked."""
        session = self._client.requests.session
        cluster = session.cluster
        if cluster.is_stale(topic, session.now_ms(), session.settings.metadata_age_ms_max):
            return None
        return cluster.topics.get(topic)

    async def find(self, topic: str, *, create: bool) -> TopicState:
        """The topic, auto-created with `create` where the broker does so; raises MissingTopic."""
        state = self.known(topic)
        if state is not None:
            return state
        session = self._client.requests.session
        deadline_ms = session.now_ms() + self._lookup_ms
        pause_ms: float = _FIRST_PAUSE_MS
        while True:
            await self._client.requests.run(refresh_metadata(session, [topic], create=create))
            state = session.cluster.topics.get(topic)
            if state is not None:
                return state
            code = session.cluster.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            # A mentioned topic is being created: the broker says so by not knowing it yet.
            waits = code in _BEING_CREATED and (create or code is ErrorCode.LEADER_NOT_AVAILABLE)
            if not waits or session.now_ms() + pause_ms > deadline_ms:
                raise _missing(code, topic)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)

    def leader(self, topic: str, partition: int) -> NodeId | None:
        return self._client.requests.session.cluster.leader(TopicPartition(topic, partition))

    def forget(self, topic: str) -> None:
        """Ask again before the next use."""
        self._client.requests.session.cluster.mark_stale([topic])


def _missing(code: ErrorCode, topic: str) -> Exception:
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return MissingTopic(
            code,
            f"{topic!r} is no name for a topic",
            hint="use 1 to 249 letters, digits, dots, underscores and hyphens",
        )
    error = topic_error(code, topic, may_appear=False)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        error.message = f"topic {topic!r} does not exist"
        error.hint = "create it first"
    return error
