"""InitProducerId: an identity for an idempotent producer."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


def _refuse(_: InitProducerIdRequest, code: ErrorCode, __: str | None) -> Message:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


@handles(InitProducerIdRequest, refuse=_refuse)
async def init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Hand out a fresh producer id at epoch 0."""
    if request.transactional_id is not None:
        ctx.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        # There is no transaction coordinator; a code that no client retries, or it would hang.
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    ctx.require(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    producer_id = await ctx.services.producer_ids.next()
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
