"""DescribeCluster: the brokers, as seen from the listener asked."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.topic_view import cluster_operations, reachable_brokers
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

BROKERS = 1
CONTROLLERS = 2


def _refuse(_: DescribeClusterRequest, code: ErrorCode, message: str | None) -> Message:
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=[]
    )


@handles(DescribeClusterRequest, refuse=_refuse)
def describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """List the brokers; the controllers have a listener of their own, which this is not."""
    ctx.require(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
            cluster_id="",
            brokers=[],
        )
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=ctx.services.metadata.image.cluster_id,
        controller_id=ctx.services.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker, endpoint in reachable_brokers(
                ctx, include_fenced=request.include_fenced_brokers
            )
        ],
        cluster_authorized_operations=cluster_operations(
            ctx, request.include_cluster_authorized_operations
        ),
    )
