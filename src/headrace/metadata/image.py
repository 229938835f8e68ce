"""The cluster's metadata at one point of its log: an immutable value that readers hold.

A reader takes `metadata.image` once and sees one consistent cluster for as long as it keeps
the reference. Images share everything that did not change (`metadata.builder` makes the next
one), so holding an old one costs little.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.ids import NO_OFFSET, NodeId, Offset, TopicPartition

NO_LEADER = -1
"""Leader of a partition that has none."""

UNASSIGNED_DIRECTORY = UUID(int=0)
"""Kafka's marker for a replica whose log directory is not known yet."""


class PartitionRegistration(NamedTuple):
    """One partition as the controller sees it.

    A named tuple and not a dataclass: an image may hold tens of thousands of these, and every
    start replays them all.
    """

    leader: NodeId
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; the place in `partitions` is the partition's index."""

    name: str
    id: UUID
    partitions: tuple[PartitionRegistration, ...] = ()

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class BrokerEndpoint(NamedTuple):
    """Where one listener of a broker can be reached, as clients should see it."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that has introduced itself; a fenced one leads nothing and is not shown."""

    id: NodeId
    epoch: int
    """Offset of the record that registered it: grows with every start of that broker."""
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[UUID, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and join in-sync sets."""
        return not (self.fenced or self.in_controlled_shutdown)

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Image:
    """All cluster metadata up to and including the record at `offset`."""

    cluster_id: str
    offset: Offset = NO_OFFSET
    epoch: int = 0
    """The quorum's leader epoch at `offset`."""
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, Topic] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized features and their levels; one that is absent is at level 0."""
    next_producer_id: int = 0
    """First producer id of the next block to hand out."""
    colliding_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Topics whose names hold '.' or '_', by their name with every '.' read as '_'."""

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Overrides of one topic; empty for one that has none or does not exist."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, name), NO_CONFIGS)

    def broker_configs(self, node_id: int | None) -> Mapping[str, str]:
        """Dynamic configs of one broker, or with None the default of all brokers."""
        name = "" if node_id is None else str(node_id)
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, name), NO_CONFIGS)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Dynamic configs of one group."""
        return self.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id), NO_CONFIGS)

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partitions(self) -> Iterator[tuple[TopicPartition, UUID, PartitionRegistration]]:
        """Every partition of every topic, with its topic's id."""
        for topic in self.topics.values():
            for index, registration in enumerate(topic.partitions):
                yield TopicPartition(topic.name, index), topic.id, registration

    @property
    def record_count(self) -> int:
        """About how many records a snapshot of this image needs."""
        partitions = sum(len(topic.partitions) for topic in self.topics.values())
        configs = sum(len(values) for values in self.configs.values())
        return partitions + configs + len(self.topics) + len(self.brokers) + len(self.features)
