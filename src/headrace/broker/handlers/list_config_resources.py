"""ListConfigResources: the names of everything that can have configs."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

# In the order in which Kafka lists them.
_LISTED = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)


def _refuse(_: ListConfigResourcesRequest, code: ErrorCode, __: str | None) -> Message:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


@handles(ListConfigResourcesRequest, refuse=_refuse)
def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the kinds asked for, or all; version 0 knows only client metrics."""
    ctx.require(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    if ctx.api_version == 0:
        wanted = {int(ConfigResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or {int(kind) for kind in _LISTED}
    if not wanted <= {int(kind) for kind in _LISTED}:
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if kind in wanted
            for name in _names(ctx, kind)
        ]
    )


def _names(ctx: RequestContext, kind: ConfigResourceType) -> list[str]:
    image = ctx.services.metadata.image
    if kind is ConfigResourceType.TOPIC:
        return [
            name
            for name in image.topics
            if ctx.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
        ]
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker) for broker in image.brokers]
    if kind is ConfigResourceType.GROUP:
        # Groups without configs of their own are not among them; ListGroups has all.
        return [resource.name for resource in image.configs if resource.type is kind]
    return []
