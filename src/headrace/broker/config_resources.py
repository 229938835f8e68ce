"""Who may read or change the configs of a resource: shared by the config handlers."""

from headrace.broker.context import RequestContext
from headrace.controller.image import ResourceType as ConfigResourceType
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType


def authorize(ctx: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    """Configs of a topic belong to the topic, all others to the cluster."""
    if resource_type == ConfigResourceType.TOPIC:
        ctx.require(operation, ResourceType.TOPIC, name)
    else:
        ctx.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
