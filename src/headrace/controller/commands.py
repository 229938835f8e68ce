"""The commands that change cluster metadata, and their answers.

A command for several things (topics, resources) answers for each of them: a bad one is a value
in the answer, so its neighbours survive. Authorization is done before a command is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headrace.core.errors import ErrorCode
from headrace.core.ids import NO_TOPIC_ID, NodeId
from headrace.machine.interface import Command
from headrace.metadata.image import NO_CONFIGS, UNASSIGNED_DIRECTORY, BrokerEndpoint


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic to create: either counts (-1 for the default) or an explicit assignment."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(partition index, replicas) pairs as sent; may hold an index twice, which is refused."""
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """Answer for one topic; ids and counts are set only without an error."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=lambda: NO_CONFIGS)
    """The overrides that the topic is created with."""


@dataclass(frozen=True, slots=True)
class CreateTopics(Command[tuple[TopicCreation, ...]]):
    """Create topics; with `validate_only` say what would happen and change nothing.

    Answers once per name: a name given twice is refused, once.
    """

    topics: tuple[TopicToCreate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicToDelete:
    """Named either by name or by id, never both."""

    name: str | None = None
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    name: str | None
    topic_id: UUID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command[tuple[TopicDeletion, ...]]):
    topics: tuple[TopicToDelete, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Raise a topic to `count` partitions; `assignments` lists replicas of the added ones only."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class PartitionsCreation:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[tuple[PartitionsCreation, ...]]):
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigsToReplace:
    """Legacy AlterConfigs: these become all the configs of the resource."""

    resource_type: int
    resource_name: str
    configs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """One key; `operation` as on the wire: 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT."""

    name: str
    operation: int
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigsToAlter:
    resource_type: int
    resource_name: str
    operations: tuple[AlterConfigOp, ...]


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Answer for one resource, in the order of the command."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[tuple[ConfigAlteration, ...]]):
    resources: tuple[ConfigsToReplace, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Command[tuple[ConfigAlteration, ...]]):
    resources: tuple[ConfigsToAlter, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class RegisterBroker(Command[int]):
    """Introduce a broker, fenced until `UnfenceBroker`; answers with its broker epoch.

    Repeating it with the same incarnation id changes nothing and answers with the same epoch.
    """

    node_id: NodeId
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    directories: tuple[UUID, ...] = (UNASSIGNED_DIRECTORY,)
    rack: str | None = None
    features: dict[str, tuple[int, int]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class CompleteActivation(Command[None]):
    """The first command of every controller: a new cluster's log gets its first records."""


@dataclass(frozen=True, slots=True)
class UnfenceBroker(Command[None]):
    """Let a registered broker lead partitions; raises STALE_BROKER_EPOCH for an old epoch."""

    node_id: NodeId
    broker_epoch: int | None = None
    """None: whatever epoch the registration has."""


@dataclass(frozen=True, slots=True)
class BumpLeaderEpochs(Command[int]):
    """Start a new leader epoch in every partition that `node_id` leads or can lead again.

    Done at every start, so that nothing decided under the epoch before the stop still counts.
    Answers with the number of partitions.
    """

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids from `first_id` on, `count` of them, for one broker to hand out."""

    first_id: int
    count: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command[ProducerIdBlock]):
    """Reserve the next block of producer ids; no id is ever given out twice."""

    node_id: NodeId
    broker_epoch: int | None = None
