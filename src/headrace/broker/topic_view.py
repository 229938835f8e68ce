"""Topics and brokers of an image as one client may see them, and the topics it may create."""

from headrace.broker.request import RequestContext, RequestOrigin
from headrace.core.errors import ErrorCode
from headrace.core.listeners import WILDCARDS
from headrace.metadata.image import BrokerEndpoint, BrokerRegistration
from headrace.metadata.names import name_problem
from headrace.security.authorizer import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    AclOperation,
    ResourceType,
)

NOT_ASKED = -(2**31)
"""What the wire says where authorized operations were not asked for."""


def reachable_brokers(
    ctx: RequestContext, *, include_fenced: bool = False
) -> list[tuple[BrokerRegistration, BrokerEndpoint]]:
    """Brokers with the address they have on the listener that the client came through."""
    return [
        (broker, endpoint)
        for broker in ctx.services.metadata.image.brokers.values()
        if (endpoint := endpoint_for(ctx.origin, broker)) is not None
        and (include_fenced or not broker.fenced)
    ]


def endpoint_for(origin: RequestOrigin, broker: BrokerRegistration) -> BrokerEndpoint | None:
    """Where a client reaches a broker; None if the broker has not the listener of the request."""
    endpoint = broker.endpoint(origin.listener)
    if endpoint is not None and endpoint.host in WILDCARDS:
        # Bound to every address and told of none: the one the client came to works for it.
        return endpoint._replace(host=origin.local_host)
    return endpoint


def offline_replicas(ctx: RequestContext, topic: str, index: int) -> list[int]:
    """The nodes whose replica of a partition cannot be read or written at the moment."""
    services = ctx.services
    return [services.node_id] if services.replicas.is_offline(topic, index) else []


def authorized_operations(ctx: RequestContext, resource_type: ResourceType, name: str) -> int:
    """The operations the client may do to this resource, as the wire's bit field."""
    bits = 0
    for operation in OPERATIONS_ON[resource_type]:
        if ctx.allows(operation, resource_type, name):
            bits |= 1 << operation
    return bits


def missing_topic_error(name: str) -> ErrorCode:
    """What a client is told of a topic that does not exist: whether there can be one."""
    possible = name_problem(name) is None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if possible else ErrorCode.INVALID_TOPIC_EXCEPTION


def may_create_topic(ctx: RequestContext, name: str) -> bool:
    """Whether the client may create a topic of this name, or any."""
    return ctx.allows(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or ctx.allows(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def topic_operations(ctx: RequestContext, name: str, asked: bool) -> int:
    return authorized_operations(ctx, ResourceType.TOPIC, name) if asked else NOT_ASKED


def cluster_operations(ctx: RequestContext, asked: bool) -> int:
    if not asked:
        return NOT_ASKED
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(ctx, ResourceType.CLUSTER, CLUSTER_NAME)
