"""Who leads instead, in responses that say "not here" (KIP-951).

A client that is told need not ask for metadata first. Only a leader whose address for the
listener of the request is known is named: one without an address would be of no use.
"""

from typing import Final
from uuid import UUID

from headrace.broker.request import RequestOrigin
from headrace.broker.services import Services
from headrace.broker.topic_view import endpoint_for
from headrace.core.errors import ErrorCode
from headrace.metadata.image import BrokerEndpoint, BrokerRegistration, PartitionRegistration
from headrace.protocol.messages import fetch, produce

PRODUCE_SINCE: Final = 10
FETCH_SINCE: Final = 16
_LED_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_Found = tuple[PartitionRegistration, BrokerRegistration, BrokerEndpoint]


def add_to_produce(
    services: Services, origin: RequestOrigin, version: int, response: produce.ProduceResponse
) -> None:
    """Name the leaders of partitions that were not appended to, or not to the end."""
    if version < PRODUCE_SINCE:
        return
    nodes: dict[int, produce.NodeEndpoint] = {}
    for topic in response.responses:
        for each in topic.partition_responses:
            if each.error_code in _LED_ELSEWHERE:
                found = _leader(services, origin, topic.name, topic.topic_id, each.index)
                if found is not None:
                    registration, broker, (_, host, port, _) = found
                    each.current_leader = produce.LeaderIdAndEpoch(
                        leader_id=broker.id, leader_epoch=registration.leader_epoch
                    )
                    nodes[broker.id] = produce.NodeEndpoint(
                        node_id=broker.id, host=host, port=port, rack=broker.rack
                    )
    if nodes:
        response.node_endpoints = list(nodes.values())


def add_to_fetch(
    services: Services, origin: RequestOrigin, version: int, response: fetch.FetchResponse
) -> None:
    """Name the leaders of partitions that were not read."""
    if version < FETCH_SINCE:
        return
    nodes: dict[int, fetch.NodeEndpoint] = {}
    for topic in response.responses:
        for each in topic.partitions:
            if each.error_code in _LED_ELSEWHERE:
                found = _leader(services, origin, topic.topic, topic.topic_id, each.partition_index)
                if found is not None:
                    registration, broker, (_, host, port, _) = found
                    each.current_leader = fetch.LeaderIdAndEpoch(
                        leader_id=broker.id, leader_epoch=registration.leader_epoch
                    )
                    nodes[broker.id] = fetch.NodeEndpoint(
                        node_id=broker.id, host=host, port=port, rack=broker.rack
                    )
    if nodes:
        response.node_endpoints = list(nodes.values())


def _leader(
    services: Services, origin: RequestOrigin, name: str, topic_id: UUID, index: int
) -> _Found | None:
    """Of a topic that the request calls by its name or, since v13, by its id."""
    image = services.metadata.image
    topic = image.topics.get(name) if name else image.topics_by_id.get(topic_id)
    if topic is None or index >= len(topic.partitions):
        return None
    registration = topic.partitions[index]
    broker = image.brokers.get(registration.leader)
    endpoint = None if broker is None or broker.fenced else endpoint_for(origin, broker)
    # This node says "not here" of what it leads while a log is being opened: no news to anybody.
    if broker is None or endpoint is None or broker.id == services.node_id:
        return None
    return registration, broker, endpoint
