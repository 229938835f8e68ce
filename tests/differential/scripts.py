"""The scripts by name, and the requests that many of them build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from headrace.protocol.api_keys import APIS, ApiKey
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.differential.peer import Peer

Script = Callable[[Peer], None]
SCRIPTS: dict[str, Script] = {}
NULL_ID = UUID(int=0)
FIRST_VERSION_BY_ID = 13
NO_BYTES_LIMIT = 0x7FFF_FFFF


def script(function: Script) -> Script:
    """Enlist a script under its function's name."""
    SCRIPTS[function.__name__.replace("_", " ")] = function
    return function


def versions(key: ApiKey, since: int = 0, until: int = 99) -> Iterable[int]:
    """All versions of an API, or those within bounds."""
    api = APIS[key]
    return range(max(since, api.lowest_version), min(until, api.highest_version) + 1)


def produce_request(
    version: int,
    topic: str,
    topic_id: UUID,
    partitions: Mapping[int, bytes | None],
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Produce to one topic, by name or by id as the version wants it."""
    data = [
        PartitionProduceData(index=index, records=records) for index, records in partitions.items()
    ]
    by_id = version >= FIRST_VERSION_BY_ID
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name="" if by_id else topic,
                topic_id=topic_id if by_id else NULL_ID,
                partition_data=data,
            )
        ],
    )


def fetch_request(
    version: int,
    topic: str,
    topic_id: UUID,
    partitions: Mapping[int, int],
    *,
    max_bytes: int = NO_BYTES_LIMIT,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    forget: Iterable[int] = (),
) -> FetchRequest:
    """Fetch from one topic; `partitions` gives the offset of each."""
    by_id = version >= FIRST_VERSION_BY_ID
    name, used_id = ("", topic_id) if by_id else (topic, NULL_ID)
    asked = [
        FetchPartition(
            partition=partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in partitions.items()
    ]
    forgotten = list(forget)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=name, topic_id=used_id, partitions=asked)] if asked else [],
        forgotten_topics_data=(
            [ForgottenTopic(topic=name, topic_id=used_id, partitions=forgotten)]
            if forgotten
            else []
        ),
    )


def fill(peer: Peer, topic: str, topic_id: UUID, partition: int, *batches: bytes) -> None:
    """Write batches one by one without noting the answers."""
    for batch in batches:
        request = produce_request(13, topic, topic_id, {partition: batch})
        answer = peer.quietly(request, 13, ProduceResponse)
        found = answer.responses[0].partition_responses[0]
        assert found.error_code == 0, f"{peer.broker.kind} refused a good batch: {found}"


def wait_for_records(peer: Peer, topic: str, topic_id: UUID, partition: int, offset: int) -> None:
    """Wait (in a long poll) until the record before `offset` can be read."""
    request = fetch_request(
        13, topic, topic_id, {partition: offset - 1}, max_wait_ms=10_000, min_bytes=1
    )
    peer.quietly(request, 13, FetchResponse)
