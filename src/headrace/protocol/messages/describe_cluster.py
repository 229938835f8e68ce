"""DescribeCluster: the brokers or controllers of the cluster."""

from headrace.protocol.fields import array, boolean, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=60, versions=(0, 2), flexible_from=0)
class DescribeClusterRequest(Message):
    """Which kind of node is asked for."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2, default=False)


class DescribeClusterBroker(Struct):
    """One node."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)
    is_fenced: bool = boolean(since=2, default=False)


@message(api_key=60, versions=(0, 2), flexible_from=0)
class DescribeClusterResponse(Message):
    """The nodes."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
