"""Decisions about topics: create, delete, add partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headrace.controller.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    PartitionsCreation,
    TopicCreation,
    TopicDeletion,
    TopicToCreate,
)
from headrace.controller.decision_context import (
    PARTITIONS_PER_COMMAND_MAX,
    RECORDS_PER_COMMAND_MAX,
    DecisionContext,
    message_of,
)
from headrace.controller.placement import assign, place
from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID, TopicId
from headrace.core.topic_configs import validate_together
from headrace.machine.interface import Decision
from headrace.metadata.image import (
    Image,
    PartitionRegistration,
    Topic,
)
from headrace.metadata.names import CLUSTER_METADATA_TOPIC, collision_key, name_problem
from headrace.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
    partition_record,
)

UNKNOWN_TOPIC = "This server does not host this topic-partition."
UNKNOWN_ID = "This server does not host this topic ID."


def create_topics(
    image: Image, command: CreateTopics, context: DecisionContext
) -> Decision[MetadataRecord, tuple[TopicCreation, ...]]:
    """Topics in the order given; then, once each, the names that no topic can be made of."""
    total = sum(_partition_count(image, topic, context) for topic in command.topics)
    if total > PARTITIONS_PER_COMMAND_MAX:
        return Decision(_too_large(command, "Excessively large number of partitions per request."))
    times = Counter(topic.name for topic in command.topics)
    records: list[MetadataRecord] = []
    results: list[TopicCreation] = []
    for topic in command.topics:
        if times[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC:
            try:
                created, configs, partitions = _plan_topic(image, topic, context)
            except ApiError as refusal:
                results.append(TopicCreation(topic.name, refusal.code, message_of(refusal)))
                continue
            records += _topic_records(created, configs, partitions)
            results.append(_created(created, configs, partitions))
    for name, count in times.items():
        if count > 1:
            results.append(TopicCreation(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            results.append(TopicCreation(name, ErrorCode.INVALID_REQUEST, message))
    if len(records) > RECORDS_PER_COMMAND_MAX:
        return Decision(_too_large(command, "Unable to perform excessively large batch operation."))
    return Decision(tuple(results), () if command.validate_only else records)


def _too_large(command: CreateTopics, message: str) -> tuple[TopicCreation, ...]:
    return tuple(
        TopicCreation(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in command.topics
    )


def _partition_count(image: Image, topic: TopicToCreate, context: DecisionContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == -1:
        return context.config(image).num_partitions
    return max(0, topic.num_partitions)


def _plan_topic(
    image: Image, topic: TopicToCreate, context: DecisionContext
) -> tuple[TopicRecord, Mapping[str, str], Sequence[PartitionRegistration]]:
    """The new topic's record, configs and partitions; raises what is wrong with it first, as Kafka
    does."""
    _check_name(image, topic.name)
    nulls = [name for name, value in topic.configs if value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    # A key given twice counts once, with its last value.
    configs = {name: value for name, value in topic.configs if value is not None}
    if configs:
        validate_together(configs, context.config(image))
    if topic.assignments:
        partitions = _assigned_partitions(image, topic)
    else:
        partitions = _placed_partitions(image, topic, context)
    created = TopicRecord(name=topic.name, topic_id=context.randomness.uuid())
    return created, configs, partitions


def _check_name(image: Image, name: str) -> None:
    # The order matters where two things are wrong at once: the last check in Kafka wins there.
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    key = collision_key(name)
    if key is not None and key in image.colliding_names:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {min(image.colliding_names[key])}",
        )
    problem = name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _assigned_partitions(image: Image, topic: TopicToCreate) -> list[PartitionRegistration]:
    for given, field in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if given != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
    partitions: dict[int, PartitionRegistration] = {}
    replication_factor: int | None = None
    for index, replicas in topic.assignments:
        if index in partitions:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        partitions[index] = assign(image, index, replicas, replication_factor)
        replication_factor = len(replicas)
    if partitions.keys() != set(range(len(partitions))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [partitions[index] for index in range(len(partitions))]


def _placed_partitions(
    image: Image, topic: TopicToCreate, context: DecisionContext
) -> list[PartitionRegistration]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    config = context.config(image)
    count = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = (
        config.default_replication_factor
        if topic.replication_factor == -1
        else topic.replication_factor
    )
    return list(place(image, 0, count, factor, context.randomness))


def _topic_records(
    created: TopicRecord, configs: Mapping[str, str], partitions: Iterable[PartitionRegistration]
) -> Iterable[MetadataRecord]:
    yield created
    for name, value in configs.items():
        yield ConfigRecord(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=created.name,
            name=name,
            value=value,
        )
    for index, registration in enumerate(partitions):
        yield partition_record(created.topic_id, index, registration)


def _created(
    created: TopicRecord, configs: Mapping[str, str], partitions: Sequence[PartitionRegistration]
) -> TopicCreation:
    return TopicCreation(
        created.name,
        topic_id=created.topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )


def delete_topics(
    image: Image, command: DeleteTopics, context: DecisionContext
) -> Decision[MetadataRecord, tuple[TopicDeletion, ...]]:
    """Topics by name or id; one that is named twice, in whatever way, is refused."""
    if not context.config(image).delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED)
    names = Counter(t.name for t in command.topics if t.name is not None and not t.topic_id.int)
    ids = Counter(t.topic_id for t in command.topics if t.name is None)
    results: list[TopicDeletion] = []
    for topic in command.topics:
        if topic.name is not None and topic.topic_id != NO_TOPIC_ID:
            problem = "You may not specify both topic name and topic id."
        elif topic.name is None and topic.topic_id == NO_TOPIC_ID:
            problem = "Neither topic name nor id were specified."
        else:
            continue
        results.append(
            TopicDeletion(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, problem)
        )
    deleted: dict[TopicId, Topic] = {}
    for topic_id, times in ids.items():
        if topic_id != NO_TOPIC_ID:
            results += _delete_by_id(image, topic_id, times, deleted)
    for name, times in names.items():
        results += _delete_by_name(image, name, times, ids, deleted)
    results += (TopicDeletion(topic.name, topic.id) for topic in deleted.values())
    return Decision(tuple(results), [RemoveTopicRecord(topic_id=id) for id in deleted])


def _delete_by_id(
    image: Image, topic_id: TopicId, times: int, deleted: dict[TopicId, Topic]
) -> Iterable[TopicDeletion]:
    topic = image.topics_by_id.get(topic_id)
    if times > 1:
        yield TopicDeletion(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    elif topic is None:
        yield TopicDeletion(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
    else:
        deleted[topic_id] = topic


def _delete_by_name(
    image: Image, name: str, times: int, ids: Counter[TopicId], deleted: dict[TopicId, Topic]
) -> Iterable[TopicDeletion]:
    topic = image.topics.get(name)
    if times > 1:
        yield TopicDeletion(name, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    elif topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield TopicDeletion(name, NO_TOPIC_ID, error, UNKNOWN_TOPIC)
    elif topic.id in ids:
        deleted.pop(topic.id, None)
        message = "The provided topic name maps to an ID that was already supplied."
        yield TopicDeletion(name, topic.id, ErrorCode.INVALID_REQUEST, message)
    else:
        deleted[topic.id] = topic


def create_partitions(
    image: Image, command: CreatePartitions, context: DecisionContext
) -> Decision[MetadataRecord, tuple[PartitionsCreation, ...]]:
    """First the names given twice, then the others in the order given."""
    times = Counter(topic.name for topic in command.topics)
    records: list[MetadataRecord] = []
    results = [
        PartitionsCreation(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    for wanted in command.topics:
        if times[wanted.name] > 1:
            continue
        try:
            records += _added_partitions(image, wanted, context)
        except ApiError as refusal:
            results.append(PartitionsCreation(wanted.name, refusal.code, message_of(refusal)))
        else:
            results.append(PartitionsCreation(wanted.name))
    return Decision(tuple(results), () if command.validate_only else records)


def _added_partitions(
    image: Image, wanted: NewPartitions, context: DecisionContext
) -> list[MetadataRecord]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = len(topic.partitions)
    if wanted.count == existing:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if wanted.count < existing:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {existing} partition(s); {wanted.count} "
            "would not be an increase.",
        )
    added = wanted.count - existing
    if added > PARTITIONS_PER_COMMAND_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    factor = topic.replication_factor
    if wanted.assignments is None:
        partitions = list(place(image, existing, added, factor, context.randomness))
    elif len(wanted.assignments) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified.",
        )
    else:
        partitions = [
            assign(image, index, replicas, factor)
            for index, replicas in enumerate(wanted.assignments, existing)
        ]
    return [
        partition_record(topic.id, index, registration)
        for index, registration in enumerate(partitions, existing)
    ]
