"""How far groups are behind: the one answer for the command line, HTTP and metrics.

Lag is the end of a partition less what the group has committed. Partitions that are assigned
and not committed yet are listed with no lag rather than none at all; ends that cannot be had
(the topic is gone, its leader does not answer) leave the lag unknown, and hold up nobody.
"""

from collections.abc import Collection

from headrace.client.core.admin_groups import find_groups
from headrace.client.core.group_models import (
    CommittedOffset,
    GroupDescription,
    MemberDescription,
    PartitionLag,
)
from headrace.client.core.lookups import refresh_metadata
from headrace.client.core.member_metadata import by_topic
from headrace.client.core.offset_operations import fetch_all_offsets
from headrace.client.core.operations import ClientOperation, SendAll, Session, Sleep
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LATEST = -1
_EARLIEST = -2
# Leaders may be moving: a partition without an answer gets a second chance, not a third.
_ATTEMPTS = 2


def group_lags(
    session: Session, groups: Collection[str], *, members: bool = True, starts: bool = False
) -> ClientOperation[dict[str, list[PartitionLag]]]:
    """The lag of each group by partition; `members` and `starts` say what else to ask for."""
    described: dict[str, GroupDescription] = {}
    if members:
        described = yield from find_groups(session, groups)
    committed = yield from fetch_all_offsets(session, groups)
    owners = {group: dict(each.owners()) for group, each in described.items()}
    wanted = {where for group in groups for where in committed[group]}
    wanted |= {where for each in owners.values() for where in each}
    ends = yield from _known_offsets(session, wanted, _LATEST)
    first: dict[TopicPartition, int] = {}
    if starts:
        first = yield from _known_offsets(session, wanted, _EARLIEST)
    return {group: _lags(committed[group], owners.get(group, {}), ends, first) for group in groups}


def _lags(
    committed: dict[TopicPartition, CommittedOffset],
    owners: dict[TopicPartition, MemberDescription],
    ends: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
) -> list[PartitionLag]:
    lags = []
    for where in sorted({*committed, *owners}):
        place, end = committed.get(where), ends.get(where)
        lag = None
        if place is not None and end is not None:
            # A log that was cut back behind its readers has nothing more for them.
            lag = max(end - place.offset, 0)
        lags.append(
            PartitionLag(
                partition=where,
                committed=None if place is None else place.offset,
                end=end,
                lag=lag,
                leader_epoch=-1 if place is None else place.leader_epoch,
                metadata="" if place is None else place.metadata,
                member=owners.get(where),
                start=starts.get(where),
            )
        )
    return lags


def _known_offsets(
    session: Session, partitions: Collection[TopicPartition], timestamp: int
) -> ClientOperation[dict[TopicPartition, int]]:
    """Where these partitions end, or start; those that nobody can tell of are left out."""
    found: dict[TopicPartition, int] = {}
    for attempt in range(_ATTEMPTS):
        missing = [each for each in partitions if each not in found]
        if not missing:
            break
        if attempt:
            yield Sleep(session.backoff.delay_ms(attempt))
        leaders = yield from _leaders(session, missing)
        responses: list[Message | HeadraceError] = yield SendAll(
            [_ask_offsets(session, node, each, timestamp) for node, each in leaders.items()]
        )
        for response, asked in zip(responses, leaders.values(), strict=True):
            if isinstance(response, HeadraceError):
                session.cluster.mark_stale({each.topic for each in asked})
            else:
                found.update(_read_offsets(session, response))
        if len(found) == len(set(partitions)) or not leaders:
            break
    return found


def _leaders(
    session: Session, partitions: Collection[TopicPartition]
) -> ClientOperation[dict[NodeId, list[TopicPartition]]]:
    cluster, age = session.cluster, session.settings.metadata_age_ms_max
    now_ms = session.now_ms()
    topics = {each.topic for each in partitions}
    stale = {topic for topic in topics if cluster.is_stale(topic, now_ms, age)}
    stale |= {each.topic for each in partitions if cluster.leader(each) is None}
    if stale:
        yield from refresh_metadata(session, stale)
    leaders: dict[NodeId, list[TopicPartition]] = {}
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is not None:
            leaders.setdefault(leader, []).append(partition)
    return leaders


def _ask_offsets(
    session: Session, node: NodeId, partitions: Collection[TopicPartition], timestamp: int
) -> SendRequest:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    limit = session.settings.request_timeout_ms
    request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=limit)
    return SendRequest(node, request, ListOffsetsResponse, limit, version_min=1)


def _read_offsets(session: Session, response: Message) -> dict[TopicPartition, int]:
    assert isinstance(response, ListOffsetsResponse)
    found: dict[TopicPartition, int] = {}
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                session.cluster.mark_stale([topic.name])
            else:
                found[TopicPartition(topic.name, part.partition_index)] = part.offset
    return found
