"""IncrementalAlterConfigs: change single keys of a resource."""

from collections.abc import Iterable

from headrace.broker.config_resources import alterable
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import (
    AlterConfigOp,
    ConfigAlteration,
    ConfigsToAlter,
    IncrementalAlterConfigs,
)
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def _refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> Message:
    return _shape(
        ConfigAlteration(each.resource_type, each.resource_name, code, message)
        for each in request.resources
    )


@handles(IncrementalAlterConfigsRequest, refuse=_refuse)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Apply the operations to every resource the client may alter."""
    allowed, refused = alterable(ctx, request.resources)
    command = IncrementalAlterConfigs(tuple(map(_command, allowed)), request.validate_only)
    return _shape((*await ctx.services.controller.submit(command), *refused))


def _command(resource: AlterConfigsResource) -> ConfigsToAlter:
    return ConfigsToAlter(
        resource.resource_type,
        resource.resource_name,
        tuple(
            AlterConfigOp(each.name, each.config_operation, each.value) for each in resource.configs
        ),
    )


def _shape(results: Iterable[ConfigAlteration]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error,
                error_message=result.message,
                resource_type=result.resource_type,
                resource_name=result.resource_name,
            )
            for result in results
        ]
    )
