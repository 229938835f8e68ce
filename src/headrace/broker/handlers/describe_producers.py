"""DescribeProducers: who has been writing to a partition with an identity."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.metadata.names import name_problem
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType


@handles(DescribeProducersRequest)
def describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List the producers each partition remembers."""
    # Once each: there may be thousands of them.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name, partitions=[_partition_response(ctx, name, index) for index in indexes]
            )
            for name, indexes in asked.items()
        ]
    )


def _partition_response(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    partition_response = PartitionResponse(partition_index=index, active_producers=[])
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic):
        partition_response.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return partition_response
    try:
        partition = ctx.services.replicas.require(topic, index)
    except ApiError as error:
        problem = name_problem(topic)
        if problem is not None:
            partition_response.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            partition_response.error_message = problem
            return partition_response
        partition_response.error_code = error.code
        if topic not in ctx.services.metadata.image.topics:
            partition_response.error_message = "This server does not host this topic-partition."
        return partition_response
    try:
        producers = partition.active_producers
    except HeadraceError as error:
        partition_response.error_code = error.code
        if error.message != error.code.name:
            partition_response.error_message = error.message
        return partition_response
    partition_response.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_start,
        )
        for producer_id, producer in producers
    ]
    return partition_response
