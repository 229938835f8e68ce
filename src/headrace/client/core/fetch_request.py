"""Fetches as they are sent: the request, and what must be remembered until it is answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from headrace.client.core.fetch_session import SessionRequest
from headrace.client.core.fetched import Cursor
from headrace.client.core.settings import ReaderSettings
from headrace.core.ids import TopicPartition
from headrace.network.send_request import SendRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic


@dataclass(slots=True)
class PlannedFetch:
    """A fetch to send, and the state each partition was in when it was planned.

    `names` are those of the ids asked for: the cache may know others when it is answered.
    """

    send: SendRequest
    cursors: Mapping[TopicPartition, tuple[Cursor, int]]
    names: Mapping[UUID, str]


def fetch_request(
    settings: ReaderSettings,
    session: SessionRequest,
    wanted: Mapping[TopicPartition, tuple[UUID, FetchPartition]],
) -> FetchRequest:
    """The request for what a session must name of the partitions wanted."""
    topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
    for partition in session.named:
        topic_id, part = wanted[partition]
        topics.setdefault((partition.topic, topic_id), []).append(part)
    return FetchRequest(
        max_wait_ms=settings.fetch_wait_ms_max,
        min_bytes=settings.fetch_bytes_min,
        max_bytes=settings.fetch_bytes_max,
        isolation_level=int(settings.isolation == "read_committed"),
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id, partitions=parts)
            for (name, topic_id), parts in topics.items()
        ],
        forgotten_topics_data=session.forgotten,
        rack_id=settings.rack,
    )
