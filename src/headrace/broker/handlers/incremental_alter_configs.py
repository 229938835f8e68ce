"""IncrementalAlterConfigs: change single keys of a resource."""

from headrace.broker.config_resources import authorize
from headrace.broker.context import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import (
    ConfigAlteration,
    ConfigOperation,
    ConfigsToAlter,
    IncrementalAlterConfigs,
)
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.security.authorizer import Operation


def _refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> Message:
    return IncrementalAlterConfigsResponse(
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


@handles(IncrementalAlterConfigsRequest, refuse=_refuse)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Apply the operations to every resource the client may alter."""
    allowed = []
    refused = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            authorize(ctx, Operation.ALTER_CONFIGS, kind, name)
        except ApiError as error:
            refused.append(ConfigAlteration(kind, name, error.code))
            continue
        operations = tuple(
            ConfigOperation(each.name, each.config_operation, each.value)
            for each in resource.configs
        )
        allowed.append(ConfigsToAlter(kind, name, operations))
    results = await ctx.services.controller.submit(
        IncrementalAlterConfigs(tuple(allowed), request.validate_only)
    )
    return IncrementalAlterConfigsResponse(
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
