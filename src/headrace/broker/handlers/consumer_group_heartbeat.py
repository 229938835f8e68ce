"""ConsumerGroupHeartbeat: the whole life of a member in a consumer group."""

from headrace.broker.group_requests import client_info, reply_callback
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType


def _refuse(
    _: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str | None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=None if message == code.name else message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


@handles(ConsumerGroupHeartbeatRequest, refuse=_refuse)
def consumer_group_heartbeat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Hand the heartbeat to the coordinator; topics must be such that the member may see."""
    ctx.require(AclOperation.READ, ResourceType.GROUP, request.group_id)

    def can_describe(topic: str) -> bool:
        return ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    if not all(map(can_describe, request.subscribed_topic_names or ())):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ctx.services.groups.consumer_heartbeat(
        request,
        client_info(ctx, request.instance_id),
        can_describe,
        reply_callback(ctx, request, _refuse),
    )
