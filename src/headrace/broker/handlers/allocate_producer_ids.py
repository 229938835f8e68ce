"""AllocateProducerIds: a block of producer ids for one broker; of brokers, to the controller."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import AllocateProducerIds
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId
from headrace.protocol.message import Message
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


def _refuse(_: AllocateProducerIdsRequest, code: ErrorCode, __: str | None) -> Message:
    return AllocateProducerIdsResponse(error_code=code, producer_id_start=0, producer_id_len=0)


@handles(AllocateProducerIdsRequest, refuse=_refuse)
async def allocate_producer_ids(
    ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Reserve the next block for the broker that asks."""
    ctx.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    block = await ctx.services.controller.submit(
        AllocateProducerIds(NodeId(request.broker_id), request.broker_epoch)
    )
    return AllocateProducerIdsResponse(
        producer_id_start=block.first_id, producer_id_len=block.count
    )
