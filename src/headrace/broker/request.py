"""One request: where it comes from, where its response goes, and what a handler sees of it.

    origin    who asks: a value of each request, since a connection may authenticate anew
    sink      takes the response: a place in the responses of a connection, or a future
    context   both, with the header, the services and the time it began

Nothing here knows a socket. What a request travels on is a `ClientConnection`, whichever it is.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, Protocol

from headrace.broker.fetch_rate_limiter import FetchRateLimiter
from headrace.broker.metering import ApiMetrics
from headrace.broker.services import Services
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.listeners import ListenerType
from headrace.protocol.frames import RequestHeader
from headrace.protocol.message import Message
from headrace.replication.partition import Partition
from headrace.security.authorizer import AclOperation, Action, ResourceType
from headrace.security.principal import Principal

logger = logging.getLogger(__name__)

_DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class RequestOrigin(NamedTuple):
    """Who asks, from where, and through which listener.

    The client id is not here: every request names its own, in its header.
    """

    principal: Principal
    client_host: str
    listener: str
    """Its name; brokers have another address on each listener."""
    listener_type: ListenerType = ListenerType.BROKER
    local_host: str = "localhost"
    """The address that the client came to."""
    client_software: tuple[str, str] = ("unknown", "unknown")
    is_this_broker: bool = False
    """The broker itself asks, within its process: it may do everything."""


class DelayedOperation(Protocol):
    """A request under way that nobody will read the response of once the client is gone."""

    def cancel(self) -> None: ...


class ClientConnection(Protocol):
    """What requests arrive on, one after the other: a socket, or a client in this process."""

    # Of the requests to come; a request under way keeps the one it came with.
    origin: RequestOrigin
    delayed_operations: dict[DelayedOperation, None]
    fetch_rate_limiter: FetchRateLimiter

    def mute(self) -> None:
        """Start no further request until `unmute`."""
        ...

    def unmute(self) -> None:
        """To be called once for each `mute`."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what a request has to do later; whoever stops the broker waits for it."""
        ...


class ResponseSink(Protocol):
    """Where the response of one request goes, in the form that its receiver wants."""

    @property
    def connection(self) -> ClientConnection:
        """What the request came on; those that follow it there may have to wait."""
        ...

    def encode(self, response: Message, version: int, correlation_id: int) -> Any:
        """The response in that form; touches nothing else, so that a worker may do it."""
        ...

    def send(self, encoded: Any) -> None:
        """Hand over what `encode` made; None if no response is owed."""
        ...

    def abort(self, reason: HeadraceError | None = None) -> None:
        """There will be no response; `reason` where it is the sender's own fault."""
        ...


def is_allowed(
    services: Services,
    origin: RequestOrigin,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Whether the sender may do this."""
    return origin.is_this_broker or services.authorizer.allows(
        Action(origin.principal, origin.client_host, operation, resource_type, name)
    )


class RequestContext:
    """One request: who sent it, in which version, since when, and the way back."""

    __slots__ = (
        "_metrics",
        "_paused_at",
        "_sink",
        "_version",
        "api_version",
        "appended_to",
        "connection",
        "header",
        "is_long",
        "origin",
        "services",
        "size",
        "started",
    )

    def __init__(
        self,
        services: Services,
        origin: RequestOrigin,
        header: RequestHeader,
        sink: ResponseSink,
        version: int,
        metrics: ApiMetrics,
        started: float,
        size: int,
    ) -> None:
        """`version` is that of the response: another one only where the asked one is unknown.

        `started` is a time of the node's meters, `size` that of the request in bytes.
        """
        self.services = services
        self.connection = sink.connection
        self.origin = origin
        self.header = header
        self.api_version = header.api_version
        self.started = started
        self.size = size
        # Of very many items: who goes through them lets others have their turn.
        self.is_long = False
        # Of a produce: its partition, if it has just one and its batch was appended.
        self.appended_to: Partition | None = None
        self._sink = sink
        self._version = version
        self._metrics = metrics

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    def reply(self, response: Message | None) -> None:
        """Answer, once; None means that no response is owed."""
        if self.is_long and response is not None:
            self.finish_in_task(self._encode_in_worker(response))
            return
        sink = self._sink
        try:
            sink.send(
                None
                if response is None
                else sink.encode(response, self._version, self.header.correlation_id)
            )
        except Exception:
            # Whoever calls back later serves others too and only logs this: without its response
            # the client would wait for ever. Soon, so that responses before this one leave first.
            asyncio.get_running_loop().call_soon(self.abort)
            raise
        self._metrics.count_request(self, response)

    async def _encode_in_worker(self, response: Message) -> None:
        sink, version, correlation_id = self._sink, self._version, self.header.correlation_id
        encoded = await self.services.record_work.in_worker(
            lambda: sink.encode(response, version, correlation_id)
        )
        sink.send(encoded)
        self._metrics.count_request(self, response)

    def abort(self, reason: HeadraceError | None = None) -> None:
        """End a request that cannot be answered, or whose sender wants no response and must hear
        that it failed."""
        self._sink.abort(reason)

    def finish_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with it after the handler has returned; what is behind it has to wait for that."""
        connection = self.connection

        def done(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                logger.error(
                    "request failed: api=%s client=%s",
                    self._metrics.api,
                    self.origin.client_host,
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
        return is_allowed(self.services, self.origin, operation, resource_type, name)

    def require(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Refuse the whole request unless allowed; per-item refusals use `allows`."""
        if not self.allows(operation, resource_type, name):
            raise ApiError(_DENIED[resource_type])
