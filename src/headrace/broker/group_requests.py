"""What the handlers of group requests share."""

from collections.abc import Callable
from typing import TypeVar

from headrace.broker.request import RequestContext
from headrace.coordinator.result import ReplyCallback
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.result import ClientInfo
from headrace.protocol.message import Message

R = TypeVar("R", bound=Message)


def reply_callback(
    ctx: RequestContext, request: R, refuse: Callable[[R, ErrorCode, str | None], Message]
) -> ReplyCallback:
    """A reply for the coordinator: its answer as it is, or the refusal of this API."""

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            ctx.reply(refuse(request, outcome.code, outcome.message))
        else:
            ctx.reply(outcome)

    return reply


def client_info(ctx: RequestContext, instance_id: str | None) -> ClientInfo:
    """Who asks, with a member id in case it needs one: Kafka's form, readable in lists."""
    client_id = ctx.client_id or ""
    new_id = ctx.services.groups.new_member_id(client_id if instance_id is None else instance_id)
    return ClientInfo(client_id, ctx.origin.client_host, ctx.api_version, new_id)
