"""What the client knows about the cluster: brokers, topics, leaders and their epochs.

Knowledge only moves forward: an answer with an older leader epoch than the one known is kept
out (a lagging broker would otherwise send us back to a deposed leader), unless the topic was
created anew, which its id tells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from headrace.core.errors import ErrorCode, known_code
from headrace.core.ids import NO_EPOCH, NO_TOPIC_ID, LeaderEpoch, NodeId, TopicPartition
from headrace.network.address import BrokerAddress
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = NodeId(-1)
_FIRST_BOOTSTRAP = -2


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who leads a partition, and since which epoch."""

    partition: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: Sequence[int] = ()
    in_sync: Sequence[int] = ()
    offline: Sequence[int] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic; `partitions` is indexed by partition number."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionState]
    is_internal: bool = False


class Cluster:
    """The metadata cache. Pure: answers are fed in with the time they arrived."""

    def __init__(self, bootstrap: Iterable[tuple[str, int]]) -> None:
        self.bootstrap = [
            BrokerAddress(NodeId(_FIRST_BOOTSTRAP - index), host, port)
            for index, (host, port) in enumerate(bootstrap)
        ]
        self.brokers: dict[NodeId, BrokerAddress] = {}
        self.cluster_id: str | None = None
        self.controller = NO_LEADER
        self.topics: dict[str, TopicState] = {}
        self.topic_errors: dict[str, ErrorCode] = {}
        self.updated_ms: dict[str, float] = {}

    def address(self, node: NodeId) -> BrokerAddress | None:
        """Where a node listens, bootstrap servers included."""
        if node <= _FIRST_BOOTSTRAP:
            return self.bootstrap[_FIRST_BOOTSTRAP - node]
        return self.brokers.get(node)

    def candidates(self, preferred: Iterable[NodeId] = ()) -> list[NodeId]:
        """Nodes to ask a question that any broker can answer, best first."""
        order = dict.fromkeys(node for node in preferred if self.address(node) is not None)
        order.update(dict.fromkeys(self.brokers))
        order.update(dict.fromkeys(server.node_id for server in self.bootstrap))
        return list(order)

    def leader(self, partition: TopicPartition) -> NodeId | None:
        """The known leader, None if there is none or it is not known."""
        state = self.partition(partition)
        if state is None or state.leader not in self.brokers:
            return None
        return state.leader

    def partition(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        state = self.partition(partition)
        return NO_EPOCH if state is None else state.leader_epoch

    def topic_id(self, topic: str) -> UUID:
        """The topic's id; all zero when the topic or its id is not known."""
        state = self.topics.get(topic)
        return NO_TOPIC_ID if state is None else state.topic_id

    def is_stale(self, topic: str, now_ms: float, age_ms_max: float) -> bool:
        """Whether the topic was never seen, marked for refresh, or seen too long ago."""
        updated = self.updated_ms.get(topic)
        return updated is None or now_ms - updated > age_ms_max

    def mark_stale(self, topics: Iterable[str]) -> None:
        """Ask again before the next use; leaders stay known for what is in flight."""
        for topic in topics:
            self.updated_ms.pop(topic, None)

    def update(self, response: MetadataResponse, now_ms: float) -> None:
        """Take in an answer to a Metadata request."""
        self.brokers = {
            NodeId(broker.node_id): BrokerAddress(
                NodeId(broker.node_id), broker.host, broker.port, broker.rack
            )
            for broker in response.brokers
        }
        self.controller = NodeId(response.controller_id)
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic, now_ms)

    def _update_topic(self, name: str, topic: MetadataResponseTopic, now_ms: float) -> None:
        if topic.error_code:
            self.topics.pop(name, None)
            self.updated_ms.pop(name, None)
            self.topic_errors[name] = known_code(topic.error_code)
            return
        known = self.topics.get(name)
        same = known is not None and known.topic_id == topic.topic_id
        old = known.partitions if known is not None and same else ()
        count = 1 + max((part.partition_index for part in topic.partitions), default=-1)
        states = [PartitionState(index, NO_LEADER, NO_EPOCH) for index in range(count)]
        for part in topic.partitions:
            index = part.partition_index
            if index < len(old) and old[index].leader_epoch > part.leader_epoch >= 0:
                states[index] = old[index]
                continue
            states[index] = PartitionState(
                partition=index,
                leader=NodeId(part.leader_id),
                leader_epoch=LeaderEpoch(part.leader_epoch),
                replicas=tuple(part.replica_nodes),
                in_sync=tuple(part.isr_nodes),
                offline=tuple(part.offline_replicas),
                error_code=part.error_code,
            )
        self.topics[name] = TopicState(name, topic.topic_id, states, topic.is_internal)
        self.topic_errors.pop(name, None)
        self.updated_ms[name] = now_ms

    def update_leader(self, partition: TopicPartition, leader: NodeId, epoch: LeaderEpoch) -> bool:
        """Take a new leader from a Produce or Fetch answer (KIP-951); False if it is no news."""
        topic = self.topics.get(partition.topic)
        state = self.partition(partition)
        if topic is None or state is None or epoch <= state.leader_epoch:
            return False
        if leader not in self.brokers:
            return False
        states = list(topic.partitions)
        states[partition.partition] = replace(state, leader=leader, leader_epoch=epoch)
        self.topics[partition.topic] = replace(topic, partitions=states)
        return True

    def add_broker(self, broker: BrokerAddress) -> None:
        """Learn an address that came with a new leader."""
        self.brokers[broker.node_id] = broker
