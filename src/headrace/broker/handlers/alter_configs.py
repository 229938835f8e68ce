"""AlterConfigs: the legacy form, which replaces all configs of a resource."""

from headrace.broker.config_resources import authorize
from headrace.broker.context import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import AlterConfigs, ConfigAlteration, ConfigsToReplace
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headrace.security.authorizer import Operation


def _refuse(request: AlterConfigsRequest, code: ErrorCode, message: str | None) -> Message:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@handles(AlterConfigsRequest, refuse=_refuse)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of every resource the client may alter."""
    allowed = []
    refused = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            authorize(ctx, Operation.ALTER_CONFIGS, kind, name)
        except ApiError as error:
            refused.append(ConfigAlteration(kind, name, error.code))
            continue
        configs = tuple((each.name, each.value) for each in resource.configs)
        allowed.append(ConfigsToReplace(kind, name, configs))
    results = await ctx.services.controller.submit(
        AlterConfigs(tuple(allowed), request.validate_only)
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error,
                error_message=result.message,
                resource_type=result.resource_type,
                resource_name=result.resource_name,
            )
            for result in (*results, *refused)
        ]
    )
