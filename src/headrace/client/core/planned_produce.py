"""Produce requests from batches, and outcomes per partition from their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from headrace.client.core.batches import ProducerBatch
from headrace.client.core.operations import Session
from headrace.core.ids import NO_TOPIC_ID, NodeId, TopicPartition
from headrace.network.address import BrokerAddress
from headrace.network.send_request import SendRequest
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_LAST_VERSION_BY_NAME = 12


@dataclass(slots=True)
class PlannedProduce:
    """A request to send, and the batches whose fate its answer decides.

    `names` are those of the ids in the request: the cache may know others when it is answered.
    """

    send: SendRequest
    batches: Sequence[ProducerBatch]
    names: Mapping[UUID, str]


def plan_produce(
    session: Session, acks: int, node: NodeId, batches: Sequence[ProducerBatch]
) -> PlannedProduce:
    """One request for these encoded batches, at most one per partition."""
    cluster = session.cluster
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        topics.setdefault(batch.partition.topic, []).append(
            PartitionProduceData(index=batch.partition.partition, records=batch.data)
        )
    data = [
        TopicProduceData(name=name, topic_id=cluster.topic_id(name), partition_data=parts)
        for name, parts in topics.items()
    ]
    by_id = all(topic.topic_id != NO_TOPIC_ID for topic in data)
    timeout_ms = session.settings.request_timeout_ms
    send = SendRequest(
        node,
        ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data),
        ProduceResponse,
        timeout_ms,
        version_max=1000 if by_id else _LAST_VERSION_BY_NAME,
        expects_response=acks != 0,
    )
    return PlannedProduce(send, batches, {topic.topic_id: topic.name for topic in data})


def produce_outcomes(
    session: Session, call: PlannedProduce, response: ProduceResponse
) -> dict[TopicPartition, PartitionProduceResponse]:
    """What became of each partition; addresses that came along are taken into the cache."""
    for node in response.node_endpoints:
        session.cluster.add_broker(
            BrokerAddress(NodeId(node.node_id), node.host, node.port, node.rack)
        )
    outcomes: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or call.names.get(topic.topic_id, "")
        for outcome in topic.partition_responses:
            outcomes[TopicPartition(name, outcome.index)] = outcome
    return outcomes
