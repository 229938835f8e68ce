"""Who may read or change the configs of a resource: shared by the config handlers."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from headrace.broker.request import RequestContext
from headrace.controller.commands import ConfigAlteration
from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ApiError
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


class Resource(Protocol):
    """A resource as either form of AlterConfigs names it."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


def authorize(ctx: RequestContext, operation: AclOperation, resource_type: int, name: str) -> None:
    """Configs of a topic belong to the topic, those of a group to it, all others to the cluster."""
    if resource_type == ConfigResourceType.TOPIC:
        ctx.require(operation, ResourceType.TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP:
        ctx.require(operation, ResourceType.GROUP, name)
    else:
        ctx.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def alterable(
    ctx: RequestContext, resources: Iterable[R]
) -> tuple[list[R], list[ConfigAlteration]]:
    """The resources the client may alter, and the answers for those it may not."""
    allowed: list[R] = []
    refused: list[ConfigAlteration] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            authorize(ctx, AclOperation.ALTER_CONFIGS, kind, name)
            allowed.append(resource)
        except ApiError as error:
            refused.append(ConfigAlteration(kind, name, error.code))
    return allowed, refused
