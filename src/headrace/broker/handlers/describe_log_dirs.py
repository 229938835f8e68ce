"""DescribeLogDirs: how much each partition takes, and how much room is left."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ErrorCode
from headrace.core.ids import TopicPartition
from headrace.protocol.message import Message
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headrace.replication.partition import Partition
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


def _refuse(_: DescribeLogDirsRequest, code: ErrorCode, __: str | None) -> Message:
    return DescribeLogDirsResponse(error_code=code, results=[])


@handles(DescribeLogDirsRequest, refuse=_refuse)
def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Answer for the one directory of this node."""
    ctx.require(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    replicas = ctx.services.replicas
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in _asked(ctx, request):
        name, index = partition.id
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=partition.size_bytes,
                # How far the high watermark is behind the end is not lag of a leader.
                offset_lag=0,
                is_future_key=False,
            )
        )
    total, usable = replicas.directory.space()
    results = [
        DescribeLogDirsResult(
            log_dir=replicas.directory.path,
            topics=list(topics.values()),
            total_bytes=total,
            usable_bytes=usable,
        )
    ]
    # The answer has a code per directory only: what is offline is named by its own.
    results += [
        DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
            log_dir=f"{replicas.directory.path}/{partition}",
            topics=[],
        )
        for partition in _offline(ctx, request)
    ]
    return DescribeLogDirsResponse(results=results)


def _offline(ctx: RequestContext, request: DescribeLogDirsRequest) -> list[TopicPartition]:
    offline = ctx.services.replicas.offline
    if request.topics is None:
        return list(offline)
    asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return [partition for partition in offline if partition in asked]


def _asked(ctx: RequestContext, request: DescribeLogDirsRequest) -> list[Partition]:
    replicas = ctx.services.replicas
    if request.topics is None:
        return list(replicas)
    found = (
        replicas.find(topic.topic, index) for topic in request.topics for index in topic.partitions
    )
    return [partition for partition in found if partition is not None]
