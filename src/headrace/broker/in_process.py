"""A way into the handlers of this process for `headrace.client`: no socket, no frames.

    client = in_process_client(processor, name="text", listener="PLAINTEXT")

The other listeners of a node use it, so they obey the rules of every other client: one after the
other where order matters, the authorizer, the limits, auto-creation and the coordinators. Requests
are handed over in the highest version that the route and the call allow; responses come back as
futures, in any order. Records go through as they are (produce, fetch); all else goes through its
codec once, which drops what the version does not have, and parts what the two sides hold.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from operator import methodcaller
from typing import Any, Final, NamedTuple, cast

from headrace.broker.fetch_rate_limiter import FetchRateLimiter
from headrace.broker.processor import RequestProcessor
from headrace.broker.request import DelayedOperation, RequestOrigin
from headrace.client.aio.client import AsyncClient
from headrace.client.core.settings import ClientSettings
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.files import FileRange
from headrace.core.shared_calls import call_each
from headrace.network.address import BrokerAddress
from headrace.network.connection import ResponseFuture
from headrace.network.errors import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    RequestTimedOut,
)
from headrace.network.send_request import SendRequest, choose_version
from headrace.protocol.frames import RequestHeader
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from headrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from headrace.security.principal import ANONYMOUS, Principal

logger = logging.getLogger(__name__)

# How long a closing connection waits for handlers that are still at work.
CLOSE_TIMEOUT_SECONDS: Final = 5
# Made for a version by whoever makes them, and large.
_PASSED_UNCHANGED: Final = (ProduceResponse, FetchResponse)
# Never connected to: the connections below lead into this process wherever an address points.
_UNUSED_ADDRESS: Final = "in-process:1"


class InProcessRequest:
    """The response of one request goes to a future, as a message."""

    __slots__ = ("connection", "deadline", "future")

    def __init__(self, connection: "InProcessConnection", future: ResponseFuture) -> None:
        self.connection = connection
        self.future = future
        self.deadline = 0.0

    def encode(self, response: Message, version: int, _: int) -> Message:
        """The response as the other side of a socket would see it."""
        if isinstance(response, _PASSED_UNCHANGED):
            return response
        return type(response).decode(memoryview(response.encode(version)), version)

    def send(self, response: Message | None) -> None:
        left_in_files = _partitions_in_files(response)
        if left_in_files:
            self.connection.start(self._read_files(left_in_files, response))
        else:
            self._respond(response)

    async def _read_files(
        self, left_in_files: list[PartitionData], response: Message | None
    ) -> None:
        """Nobody sends these records: they are wanted now, away from the loop."""
        for data in left_in_files:
            try:
                data.records = await self.connection.disk_reads.run(
                    cast(FileRange, data.records).read
                )
            except OSError as error:
                logger.warning("cannot read records: error=%s", error)
                data.error_code, data.records = ErrorCode.KAFKA_STORAGE_ERROR, b""
        self._respond(response)

    def _respond(self, response: Message | None) -> None:
        self.connection.finished(self)
        if not self.future.done():
            self.future.set_result(response)

    def abort(self, reason: HeadraceError | None = None) -> None:
        """This request alone: the clients of a listener share its connection."""
        text = "the broker could not answer"
        self.fail(ConnectionLost(text if reason is None else f"{text}: {reason}"))

    def fail(self, error: HeadraceError) -> None:
        self.connection.finished(self)
        if not self.future.done():
            self.future.set_exception(error)


class _Waiting(NamedTuple):
    """A request whose effect the ones before it must have first."""

    origin: RequestOrigin
    header: RequestHeader
    request: Message | memoryview
    sink: InProcessRequest


class InProcessConnection:
    """What a connection is to Kafka's listeners, for a client in this process."""

    def __init__(
        self, address: BrokerAddress, processor: RequestProcessor, origin: RequestOrigin, name: str
    ) -> None:
        self.address = address
        self.origin = origin
        self.delayed_operations: dict[DelayedOperation, None] = {}
        self.fetch_rate_limiter = FetchRateLimiter()
        self.disk_reads = processor.services.disk_reads
        self._client_id = f"headrace-{name}"
        self._processor = processor
        self._now = processor.services.request_metrics.now
        self._loop = asyncio.get_running_loop()
        self._calls: dict[InProcessRequest, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        # Requests under way whose effect the next ones must see; those wait.
        self._mutes = 0
        self._muted: deque[_Waiting] = deque()

    @property
    def is_ready(self) -> bool:
        return not self._closed

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def submit(self, send: SendRequest, origin: RequestOrigin | None = None) -> ResponseFuture:
        """Start a request; never waits. `origin` says on whose behalf, if not the connection's."""
        future: ResponseFuture = self._loop.create_future()
        if self._closed:
            future.set_exception(ConnectFailed("the way into the broker was closed"))
            return future
        origin = origin or self.origin
        try:
            served = self._processor.versions(send.request.schema.api_key, origin.listener_type)
            version = choose_version(send, served, "the broker")
            request = _taken_over(send.request, version)
        except HeadraceError as error:
            future.set_exception(error)
            return future
        header = RequestHeader(send.request.schema.api_key or 0, version, 0, self._client_id, 0)
        sink = InProcessRequest(self, future)
        if send.expects_response:
            self._start_timeout(sink, send.timeout_ms)
        else:
            future.set_result(None)
        if self._mutes:
            self._muted.append(_Waiting(origin, header, request, sink))
        else:
            self._process(origin, header, request, sink)
        return future

    def _process(
        self,
        origin: RequestOrigin,
        header: RequestHeader,
        request: Message | memoryview,
        sink: InProcessRequest,
    ) -> None:
        try:
            if isinstance(request, Message):
                self._processor.handle(origin, header, request, sink)
            else:
                self._processor.receive(origin, header, request, sink, self._now())
        except HeadraceError as error:
            sink.abort(error)
        except Exception:
            logger.exception("request failed: client=%s", header.client_id)
            sink.abort()

    def mute(self) -> None:
        """Start no further request until `unmute`: they come in order."""
        self._mutes += 1

    def unmute(self) -> None:
        """To be called once for each `mute`."""
        self._mutes -= 1
        while self._muted and not self._mutes:
            self._process(*self._muted.popleft())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside the others; a connection that closes waits for it."""
        task = self._processor.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def finished(self, request: InProcessRequest) -> None:
        self._calls.pop(request, None)

    def close(self, lost: str | None = None) -> None:
        """The client is done with it."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        call_each(
            logger, "a waiting request", tuple(self.delayed_operations), methodcaller("cancel")
        )
        self._muted.clear()
        for request in tuple(self._calls):
            request.fail(ClientClosed("connection") if lost is None else ConnectionLost(lost))

    async def wait_closed(self) -> None:
        """Let handlers that are still at work come to their end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_SECONDS)

    # -- time

    def _start_timeout(self, request: InProcessRequest, timeout_ms: float) -> None:
        self._calls[request] = None
        request.deadline = self._loop.time() + timeout_ms / 1000
        self._arm_timer(request.deadline)

    def _arm_timer(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._expire_calls)

    def _expire_calls(self) -> None:
        """One timer per connection: handlers nearly always answer long before."""
        self._timer = None
        now = self._loop.time()
        for request in [call for call in self._calls if call.deadline <= now]:
            request.fail(RequestTimedOut("the broker did not answer in time"))
        if self._calls:
            self._arm_timer(min(call.deadline for call in self._calls))


def _partitions_in_files(response: Message | None) -> list[PartitionData]:
    if not isinstance(response, FetchResponse):
        return []
    return [
        data
        for topic in response.responses
        for data in topic.partitions
        if isinstance(data.records, FileRange)
    ]


def _taken_over(request: Message, version: int) -> Message | memoryview:
    """The request as the other side of a socket would have it: bytes, but for records."""
    if isinstance(request, ProduceRequest):
        # Copies of the batches: the log patches them in place, and the client may send them again.
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
        return request
    if isinstance(request, FetchRequest):
        return request
    return memoryview(request.encode(version))


def in_process_client(
    processor: RequestProcessor,
    *,
    name: str,
    listener: str,
    principal: Principal = ANONYMOUS,
    client_host: str = "/127.0.0.1",
    settings: ClientSettings | None = None,
) -> AsyncClient:
    """A client of the broker in this process, for one listener and one principal.

    Other brokers of the cluster are reached over sockets, as by everybody.
    """
    origin = RequestOrigin(principal, client_host, listener, client_software=("headrace", name))
    services = processor.services

    def connection(address: BrokerAddress) -> InProcessConnection | None:
        # Ids below 0 are those of bootstrap servers, and we are the only one.
        is_here = address.node_id < 0 or address.node_id == services.node_id
        return InProcessConnection(address, processor, origin, name) if is_here else None

    return AsyncClient(
        settings or ClientSettings(_UNUSED_ADDRESS, client_id=f"headrace-{name}"),
        connection_factory=connection,
        clock=services.clock,
        randomness=services.randomness,
    )
