"""FindCoordinator: who looks after a group; from v4 on, after each of several."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.topic_view import reachable_brokers
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.protocol.message import Message
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType

GROUP, TRANSACTION = 0, 1
BATCHES_SINCE = 4
NO_NODE = -1


def _refuse(request: FindCoordinatorRequest, code: ErrorCode, message: str | None) -> Message:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=NO_NODE,
        port=NO_NODE,
        coordinators=[_no_coordinator(key, code, message) for key in request.coordinator_keys],
    )


@handles(FindCoordinatorRequest, refuse=_refuse)
async def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Answer for each key; the first group of all brings the topic of all groups about."""
    if ctx.api_version >= BATCHES_SINCE:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[await _find(ctx, request.key_type, key) for key in keys]
        )
    found = await _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode(found.error_code).name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        return await _coordinator(ctx, key_type, key)
    except HeadraceError as error:
        message = "" if error.message == error.code.name else error.message
        return _no_coordinator(key, error.code, message)


async def _coordinator(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type == TRANSACTION:
        ctx.require(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        # The only kind of code that librdkafka does not retry here: waiting would be in vain.
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported yet"
        )
    if key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"no coordinators of key type {key_type}")
    ctx.require(AclOperation.DESCRIBE, ResourceType.GROUP, key)
    services = ctx.services
    index = await services.groups.coordinator_partition(key)
    partition = services.metadata.image.partition(OFFSETS_TOPIC, index)
    for broker, endpoint in reachable_brokers(ctx):
        if partition is not None and broker.id == partition.leader:
            return Coordinator(
                key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port, error_message=""
            )
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _no_coordinator(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message
    )
