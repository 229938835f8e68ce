"""What a handler sees of the world: the services, who asks, and how to answer."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.files import Part
from headrace.protocol.frames import encode_response_parts
from headrace.security.authorizer import AclOperation, Action, Authorizer, ResourceType

if TYPE_CHECKING:
    from headrace.broker.auto_creation import AutoCreation
    from headrace.broker.connection import DelayedOperation, ResponseSlot
    from headrace.broker.disk_reads import DiskReads
    from headrace.broker.fetch_rate_limiter import FetchRateLimiter
    from headrace.broker.fetch_sessions import FetchSessions
    from headrace.broker.metering import ApiMetrics, RequestMetrics
    from headrace.broker.producer_ids import ProducerIds
    from headrace.broker.record_work import RecordWork
    from headrace.broker.time_slice import TimeSlice
    from headrace.controller.controller import Controller
    from headrace.core.broker_configs import BrokerConfig
    from headrace.core.ids import NodeId
    from headrace.core.runtime import Clock, Randomness
    from headrace.groups.group_coordinator import GroupCoordinator
    from headrace.metadata.cache import MetadataCache
    from headrace.protocol.frames import RequestHeader
    from headrace.protocol.message import Message
    from headrace.replication.partition import Partition
    from headrace.replication.replica_manager import ReplicaManager
    from headrace.security.principal import Principal

logger = logging.getLogger(__name__)

NO_RESPONSE: Sequence[Part] = ()

_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Services:
    """Everything handlers may call, built once by the node."""

    __slots__ = (
        "_groups",
        "_make_groups",
        "authorizer",
        "auto_creation",
        "clock",
        "config",
        "controller",
        "disk_reads",
        "fetch_sessions",
        "metadata",
        "node_id",
        "producer_ids",
        "randomness",
        "record_work",
        "replicas",
        "request_metrics",
        "time_slice",
    )

    def __init__(
        self,
        *,
        config: "BrokerConfig",
        node_id: "NodeId",
        metadata: "MetadataCache",
        controller: "Controller",
        replicas: "ReplicaManager",
        fetch_sessions: "FetchSessions",
        make_groups: "Callable[[], GroupCoordinator]",
        producer_ids: "ProducerIds",
        authorizer: Authorizer,
        auto_creation: "AutoCreation",
        request_metrics: "RequestMetrics",
        record_work: "RecordWork",
        disk_reads: "DiskReads",
        time_slice: "TimeSlice",
        clock: "Clock",
        randomness: "Randomness",
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.metadata = metadata
        self.controller = controller
        self.replicas = replicas
        self.fetch_sessions = fetch_sessions
        self._make_groups = make_groups
        self._groups: GroupCoordinator | None = None
        self.producer_ids = producer_ids
        self.authorizer = authorizer
        self.auto_creation = auto_creation
        self.request_metrics = request_metrics
        self.record_work = record_work
        self.disk_reads = disk_reads
        self.time_slice = time_slice
        self.clock = clock
        self.randomness = randomness

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator, made when it is first asked for: a broker without groups never
        loads their half of the protocol."""
        groups = self._groups
        if groups is None:
            groups = self._groups = self._make_groups()
        return groups


class ListenerInfo(Protocol):
    """A listener as handlers know it."""

    name: str


class ClientConnection(Protocol):
    """Who asks: a client's connection, or a door of this process."""

    principal: "Principal"
    client_host: str
    local_host: str
    client_software: tuple[str, str]
    delayed_operations: "dict[DelayedOperation, None]"
    fetch_rate_limiter: "FetchRateLimiter"

    @property
    def listener(self) -> ListenerInfo: ...

    def fill(self, answer: "ResponseSlot", parts: Sequence[Part]) -> None: ...

    def mute(self) -> None: ...

    def unmute(self) -> None: ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def close(self) -> None: ...


class RequestContext:
    """One request: who sent it, in which version, since when, and the way back."""

    __slots__ = (
        "_metrics",
        "_paused_at",
        "_slot",
        "_version",
        "api_version",
        "appended_to",
        "connection",
        "header",
        "services",
        "size",
        "started",
    )

    # Of very many items: who goes through them lets others have their turn.
    is_long: ClassVar[bool] = False

    def __init__(
        self,
        services: Services,
        connection: ClientConnection,
        header: "RequestHeader",
        slot: "ResponseSlot",
        version: int,
        metrics: "ApiMetrics",
        started: float,
        size: int,
    ) -> None:
        """`version` is that of the answer: another one only where the asked one is unknown.

        `started` is a time of the node's meters, `size` that of the request in bytes.
        """
        self.services = services
        self.connection = connection
        self.header = header
        self.api_version = header.api_version
        self.started = started
        self.size = size
        # Of a produce: its partition, if it has just one and its batch was appended.
        self.appended_to: Partition | None = None
        self._slot = slot
        self._version = version
        self._metrics = metrics

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    def reply(self, response: "Message | None") -> None:
        """Answer, once; None means that no answer is owed."""
        try:
            parts: Sequence[Part] = (
                NO_RESPONSE
                if response is None
                else encode_response_parts(response, self._version, self.header.correlation_id)
            )
            self.connection.fill(self._slot, parts)
        except Exception:
            # Whoever calls back later serves others too and only logs this: without its answer
            # the client would wait for ever. Soon, so that answers before this one leave first.
            asyncio.get_running_loop().call_soon(self.abort)
            raise
        self._metrics.count_request(self, response)

    def abort(self) -> None:
        """End a request that cannot be answered, or whose sender wants no answer and must hear
        that it failed."""
        self.connection.close()

    def finish_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with it after the handler has returned; what is behind it has to wait for that."""
        connection = self.connection

        def done(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                logger.error(
                    "request failed, closing connection: client=%s",
                    connection.client_host,
                    exc_info=error,
                )
                self.abort()
            connection.unmute()

        connection.mute()
        connection.start(work).add_done_callback(done)

    def pause_timer(self) -> None:
        """The request waits because it asked to; that time is not held against the broker."""
        self._paused_at = self.services.request_metrics.now()

    def resume_timer(self) -> None:
        """The wait is over."""
        self.started += self.services.request_metrics.now() - self._paused_at

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return self.services.authorizer.allows(
            Action(
                self.connection.principal,
                self.connection.client_host,
                operation,
                resource_type,
                name,
            )
        )

    def require(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Refuse the whole request unless allowed; per-item refusals use `allows`."""
        if not self.allows(operation, resource_type, name):
            raise ApiError(_DENIED[resource_type])
