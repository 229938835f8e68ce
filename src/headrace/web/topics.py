"""Topics and their partitions: list, look, create, change, delete."""

from typing import Annotated

import msgspec

from headrace.client import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from headrace.client.core.models import (
    EARLIEST,
    LATEST,
    PartitionDescription,
    TopicDescription,
)
from headrace.core.ids import TopicPartition
from headrace.web.call import INT32_MAX, HttpCall
from headrace.web.errors import INTERNAL_TOPIC, HttpError, no_partition
from headrace.web.operations import PROXY, Operations

TOPICS = Operations("topics")

Count = Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]


class Replica(msgspec.Struct):
    """One copy of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class Partition(msgspec.Struct):
    """One partition; leader -1 while it has none."""

    partition: int
    leader: int
    replicas: list[Replica]


class Topic(msgspec.Struct):
    """One topic with its configs and partitions."""

    name: str
    configs: dict[str, str | None]
    partitions: list[Partition]


class TopicsQuery(msgspec.Struct, frozen=True):
    internal: Annotated[
        bool, msgspec.Meta(description="Also the cluster's own topics, such as committed offsets.")
    ] = False


class TopicIn(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create; what is left out is up to the broker's defaults."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    partitions: Count | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None
    configs: dict[str, str | None] = {}


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change; null takes a config back to its default."""

    partitions: Count | None = None
    configs: dict[str, str | None] = {}


class ChangeQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    dry_run: Annotated[bool, msgspec.Meta(description="Only check, change nothing.")] = False


class PartitionOffsets(msgspec.Struct):
    """Where a partition begins and ends; the end is the offset of the next record."""

    beginning_offset: int
    end_offset: int


class DeleteRecordsQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    before: Annotated[
        int,
        msgspec.Meta(ge=-1, le=2**63 - 1, description="The first offset to keep; -1: keep none."),
    ]


class LogStart(msgspec.Struct):
    """Where a partition begins now."""

    beginning_offset: int


@TOPICS.get(
    "/topics",
    "The names of all topics.",
    response=list[str],
    **{**PROXY, "query": TopicsQuery},
)
async def list_topics(call: HttpCall) -> list[str]:
    found = await call.gateway.admin.list_topics(internal=call.query.internal)
    return sorted(topic.name for topic in found)


@TOPICS.post(
    "/topics",
    "Create a topic.",
    query=ChangeQuery,
    body=TopicIn,
    response=Topic,
    status=201,
    errors=(409, 422),
)
async def create_topic(call: HttpCall) -> Topic:
    wanted: TopicIn = call.body
    new = NewTopic(
        wanted.name,
        -1 if wanted.partitions is None else wanted.partitions,
        -1 if wanted.replication_factor is None else wanted.replication_factor,
        wanted.configs,
    )
    await call.gateway.admin.create_topics([new], validate_only=call.query.dry_run)
    if call.query.dry_run:
        return Topic(wanted.name, dict(wanted.configs), [])
    return await _topic(call, wanted.name)


@TOPICS.get(
    "/topics/{topic}",
    "One topic with its partitions.",
    response=Topic,
    errors=(404, 422),
    **PROXY,
)
async def get_topic(call: HttpCall) -> Topic:
    return await _topic(call, call.path["topic"])


@TOPICS.patch(
    "/topics/{topic}",
    "Add partitions to a topic, or change its configs.",
    query=ChangeQuery,
    body=TopicChange,
    response=Topic,
    errors=(404, 422),
)
async def change_topic(call: HttpCall) -> Topic:
    name, change, dry_run = call.path["topic"], call.body, call.query.dry_run
    before = await _topic(call, name)
    if change.configs:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        await call.gateway.admin.alter_configs(
            {resource: config_changes(change.configs)}, validate_only=dry_run
        )
    if change.partitions is not None and change.partitions != len(before.partitions):
        await call.gateway.admin.create_partitions({name: change.partitions}, validate_only=dry_run)
    return await _topic(call, name)


@TOPICS.delete(
    "/topics/{topic}",
    "Delete a topic with all its records.",
    status=204,
    errors=(404, 422),
)
async def delete_topic(call: HttpCall) -> None:
    _refuse_internal(await _describe(call, call.path["topic"]))
    await call.gateway.admin.delete_topics([call.path["topic"]])


@TOPICS.get(
    "/topics/{topic}/partitions",
    "The partitions of a topic.",
    response=list[Partition],
    errors=(404, 422),
    **PROXY,
)
async def list_partitions(call: HttpCall) -> list[Partition]:
    return _partitions(await _describe(call, call.path["topic"]))


@TOPICS.get(
    "/topics/{topic}/partitions/{partition}",
    "One partition.",
    response=Partition,
    errors=(404, 422),
    **PROXY,
)
async def get_partition(call: HttpCall) -> Partition:
    return await find_partition(call)


@TOPICS.get(
    "/topics/{topic}/partitions/{partition}/offsets",
    "Where a partition begins and ends.",
    response=PartitionOffsets,
    errors=(404, 422),
    **PROXY,
)
async def get_offsets(call: HttpCall) -> PartitionOffsets:
    await find_partition(call)
    where = TopicPartition(call.path["topic"], call.number("partition"))
    first = await call.gateway.admin.list_offsets({where: EARLIEST})
    last = await call.gateway.admin.list_offsets({where: LATEST})
    return PartitionOffsets(first[where].offset, last[where].offset)


@TOPICS.delete(
    "/topics/{topic}/partitions/{partition}/records",
    "Delete the records of a partition before an offset.",
    query=DeleteRecordsQuery,
    response=LogStart,
    errors=(404, 416, 422),
)
async def delete_records(call: HttpCall) -> LogStart:
    number, topic = call.number("partition"), await _describe(call, call.path["topic"])
    _refuse_internal(topic)
    where = TopicPartition(topic.name, _numbered(topic, number).partition)
    starts = await call.gateway.admin.delete_records({where: call.query.before})
    return LogStart(starts[where])


def config_changes(configs: dict[str, str | None]) -> list[ConfigChange]:
    """Values to set, or to take back where they are null."""
    return [
        ConfigChange(name, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for name, value in configs.items()
    ]


async def find_partition(call: HttpCall) -> Partition:
    """The partition that the path names; the error says whether it or the topic is missing."""
    number = call.number("partition")
    return _numbered(await _describe(call, call.path["topic"]), number)


def _numbered(topic: TopicDescription, number: int) -> Partition:
    if number >= len(topic.partitions):
        raise no_partition(topic.name, number, len(topic.partitions))
    return _partition(topic.partitions[number])


def _refuse_internal(topic: TopicDescription) -> None:
    """What the cluster keeps for itself is not deleted by a slip in a URL."""
    if topic.is_internal:
        raise HttpError(
            INTERNAL_TOPIC,
            f"{topic.name!r} is the cluster's own topic and is not deleted over HTTP",
            hint="DELETE /groups/{group} forgets a group; Kafka's admin tools can delete the topic",
        )


async def _topic(call: HttpCall, name: str) -> Topic:
    described = await _describe(call, name)
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    configs = (await call.gateway.admin.describe_configs([resource]))[resource]
    values = {key: entry.value for key, entry in sorted(configs.items())}
    return Topic(name, values, _partitions(described))


async def _describe(call: HttpCall, name: str) -> TopicDescription:
    return (await call.gateway.admin.describe_topics([name]))[name]


def _partitions(topic: TopicDescription) -> list[Partition]:
    return [_partition(each) for each in topic.partitions]


def _partition(found: PartitionDescription) -> Partition:
    replicas = [
        Replica(broker, broker == found.leader, broker in found.in_sync)
        for broker in found.replicas
    ]
    return Partition(found.partition, found.leader, replicas)
