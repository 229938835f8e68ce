"""AlterConfigs: the legacy form, which replaces all configs of a resource."""

from collections.abc import Iterable

from headrace.broker.config_resources import alterable
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import AlterConfigs, ConfigAlteration, ConfigsToReplace
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def _refuse(request: AlterConfigsRequest, code: ErrorCode, message: str | None) -> Message:
    return _shape(
        ConfigAlteration(each.resource_type, each.resource_name, code, message)
        for each in request.resources
    )


@handles(AlterConfigsRequest, refuse=_refuse)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of every resource the client may alter."""
    allowed, refused = alterable(ctx, request.resources)
    command = AlterConfigs(tuple(map(_command, allowed)), request.validate_only)
    return _shape((*await ctx.services.controller.submit(command), *refused))


def _command(resource: AlterConfigsResource) -> ConfigsToReplace:
    return ConfigsToReplace(
        resource.resource_type,
        resource.resource_name,
        tuple((each.name, each.value) for each in resource.configs),
    )


def _shape(results: Iterable[ConfigAlteration]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
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
