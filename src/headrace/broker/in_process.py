"""A way into the handlers of this process for `headrace.client`: no socket, no frames.

    client = in_process_client(services, door="text", listener="PLAINTEXT")

The doors of a node use it, so they obey the rules of every other client: the authorizer, the
limits, auto-creation and the coordinators. Requests are handed over in the highest version that
the route and the call allow; answers come back as futures, in any order. Records go through as
they are (produce, fetch); all else goes through its codec once, which drops what the version
does not have, and parts what the two sides hold.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from operator import methodcaller
from typing import Any, Final, NamedTuple, cast

from headrace.broker.connection import DelayedOperation
from headrace.broker.connection import ResponseSlot as Place
from headrace.broker.context import RequestContext, Services
from headrace.broker.dispatch import refusal
from headrace.broker.fetch_rate_limiter import FetchRateLimiter
from headrace.broker.routes import ROUTES, Handler, Route
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
    UnsupportedApi,
)
from headrace.network.send_request import SendRequest, choose_version
from headrace.protocol.frames import RequestHeader
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from headrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from headrace.security.principal import ANONYMOUS, Principal

logger = logging.getLogger(__name__)

# How long a closing link waits for handlers that are still at work.
CLOSE_TIMEOUT_SECONDS: Final = 5
# Made for a version by whoever makes them, and large.
_PASSED_UNCHANGED: Final = (ProduceResponse, FetchRequest, FetchResponse)
# Never connected to: the links below lead into this process wherever an address points.
_UNUSED_ADDRESS: Final = "in-process:1"


class RequestOrigin(NamedTuple):
    """Who comes through a door: the same for all its requests, unless it asks for names."""

    name: str
    listener: "ListenerName"
    principal: Principal
    client_host: str


class ListenerName:
    """The listener whose addresses a door is told; it never uses them."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class InProcessContext(RequestContext):
    """A request whose answer goes to a future."""

    __slots__ = ("_connection", "deadline", "future")

    def __init__(
        self,
        services: Services,
        connection: "InProcessConnection",
        header: RequestHeader,
        future: ResponseFuture,
    ) -> None:
        meters = services.request_metrics
        meter = meters.for_api(header.api_key)
        super().__init__(
            services, connection, header, _NO_SLOT, header.api_version, meter, meters.now(), 0
        )
        self._connection = connection
        self.future = future
        self.deadline = 0.0

    def reply(self, response: Message | None) -> None:
        left_in_files = _partitions_in_files(response)
        if left_in_files:
            self._connection.start(self._read_files(left_in_files, response))
        else:
            self._respond(response)

    async def _read_files(
        self, left_in_files: list[PartitionData], response: Message | None
    ) -> None:
        """Nobody sends these records: they are wanted now, away from the loop."""
        for data in left_in_files:
            try:
                data.records = await self.services.disk_reads.run(
                    cast(FileRange, data.records).read
                )
            except OSError as error:
                logger.warning("cannot read records: error=%s", error)
                data.error_code, data.records = ErrorCode.KAFKA_STORAGE_ERROR, b""
        self._respond(response)

    def abort(self) -> None:
        """This request alone: clients of a door share its link."""
        self._connection.finished(self)
        if not self.future.done():
            self.future.set_exception(ConnectionLost("the broker could not answer"))

    def _respond(self, response: Message | None) -> None:
        self._connection.finished(self)
        if not self.future.done():
            try:
                self.future.set_result(response and _through_codec(response, self.api_version))
            except HeadraceError as error:
                self.future.set_exception(error)
        self._metrics.count_request(self, response)


_NO_SLOT: Final = Place()


class InProcessConnection:
    """What a connection is to the Kafka door; handlers see it as their caller."""

    def __init__(self, address: BrokerAddress, services: Services, origin: RequestOrigin) -> None:
        self.address = address
        self.principal = origin.principal
        self.client_host = origin.client_host
        self.local_host = "localhost"
        self.client_software = ("headrace", origin.name)
        self.delayed_operations: dict[DelayedOperation, None] = {}
        self.fetch_rate_limiter = FetchRateLimiter()
        self._listener = origin.listener
        self._client_id = f"headrace-{origin.name}"
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._calls: dict[InProcessContext, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        # Requests under way whose effect the next ones must see; those wait.
        self._mutes = 0
        self._muted: deque[tuple[InProcessContext, Handler, Message]] = deque()

    @property
    def listener(self) -> ListenerName:
        return self._listener

    @property
    def is_ready(self) -> bool:
        return not self._closed

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def submit(self, ask: SendRequest) -> ResponseFuture:
        """Start a request in its handler; never waits."""
        future: ResponseFuture = self._loop.create_future()
        if self._closed:
            future.set_exception(ConnectFailed("the way into the broker was closed"))
            return future
        try:
            handler, version = _handler(ask)
            request = _through_codec(ask.request, version)
        except HeadraceError as error:
            future.set_exception(error)
            return future
        header = RequestHeader(request.schema.api_key or 0, version, 0, self._client_id, 0)
        context = InProcessContext(self._services, self, header, future)
        if ask.expects_response:
            self._start_timeout(context, ask.timeout_ms)
        else:
            future.set_result(None)
        if self._mutes:
            self._muted.append((context, handler, request))
        else:
            self._dispatch(context, handler, request)
        return future

    def mute(self) -> None:
        """Start no further request until `go_on`: they come in order."""
        self._mutes += 1

    def unmute(self) -> None:
        """To be called once for each `hold`."""
        self._mutes -= 1
        while self._muted and not self._mutes:
            self._dispatch(*self._muted.popleft())

    def _dispatch(self, context: InProcessContext, handler: Handler, request: Message) -> None:
        if handler.is_async:
            self._call_async(context, handler, request)
        else:
            self._call(context, handler, request)

    def finished(self, context: InProcessContext) -> None:
        self._calls.pop(context, None)

    def fill(self, slot: Place, parts: object) -> None:
        raise AssertionError(f"{slot} {parts}: contexts of this link answer by themselves")

    def close(self) -> None:
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
        calls, self._calls = self._calls, {}
        for context in calls:
            if not context.future.done():
                context.future.set_exception(ClientClosed("connection"))

    async def wait_closed(self) -> None:
        """Let handlers that are still at work come to their end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_SECONDS)

    # -- handlers

    def _call(self, context: InProcessContext, handler: Handler, request: Message) -> None:
        try:
            response = handler.call(context, request)
        except HeadraceError as error:
            self._refuse(context, handler, request, error)
        except Exception:
            logger.exception("request failed: door=%s", self.client_software[1])
            context.abort()
        else:
            if response is not None:
                context.reply(response)  # type: ignore[arg-type]  # only async handlers return awaitables

    def _call_async(self, context: InProcessContext, handler: Handler, request: Message) -> None:
        async def run() -> None:
            try:
                response = await handler.call(context, request)  # type: ignore[misc]  # is_async
            except HeadraceError as error:
                self._refuse(context, handler, request, error)
            except Exception:
                logger.exception("request failed: door=%s", self.client_software[1])
                context.abort()
            else:
                context.reply(response)

        self.start(run())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside the others; a link that closes waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _refuse(
        self, context: InProcessContext, handler: Handler, request: Message, error: HeadraceError
    ) -> None:
        try:
            context.reply(refusal(handler, request, error))
        except HeadraceError as reason:
            self.finished(context)
            if not context.future.done():
                context.future.set_exception(reason)

    # -- time

    def _start_timeout(self, context: InProcessContext, timeout_ms: float) -> None:
        self._calls[context] = None
        context.deadline = self._loop.time() + timeout_ms / 1000
        self._arm_timer(context.deadline)

    def _arm_timer(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._expire_calls)

    def _expire_calls(self) -> None:
        """One timer per link: handlers nearly always answer long before."""
        self._timer = None
        now = self._loop.time()
        for context in [call for call in self._calls if call.deadline <= now]:
            self.finished(context)
            if not context.future.done():
                context.future.set_exception(RequestTimedOut("the broker did not answer in time"))
        if self._calls:
            self._arm_timer(min(call.deadline for call in self._calls))


_loaded: dict[int, tuple[Route, Handler]] = {}


def _handler(ask: SendRequest) -> tuple[Handler, int]:
    """The handler of a request and the version to speak with it."""
    schema = ask.request.schema
    api_key = -1 if schema.api_key is None else schema.api_key
    found = _loaded.get(api_key)
    if found is None:
        route = ROUTES.get(api_key)
        if route is None:
            raise UnsupportedApi(f"the broker does not offer {type(ask.request).__name__}")
        found = _loaded[api_key] = (route, route.load())
    route, handler = found
    served = (route.lowest_served, route.highest_version)
    return handler, choose_version(ask, served, "the broker")


def _partitions_in_files(response: Message | None) -> list[PartitionData]:
    if not isinstance(response, FetchResponse):
        return []
    return [
        data
        for topic in response.responses
        for data in topic.partitions
        if isinstance(data.records, FileRange)
    ]


def _through_codec(message: Message, version: int) -> Message:
    """The message as the other side of a socket would see it."""
    if isinstance(message, ProduceRequest):
        # Copies of the batches: the log patches them in place, and the client may send them again.
        for topic in message.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
        return message
    if isinstance(message, _PASSED_UNCHANGED):
        return message
    return type(message).decode(memoryview(message.encode(version)), version)


def in_process_client(
    services: Services,
    *,
    name: str,
    listener: str,
    principal: Principal = ANONYMOUS,
    client_host: str = "/127.0.0.1",
    settings: ClientSettings | None = None,
) -> AsyncClient:
    """A client of the broker in this process, for one door and one principal.

    Other brokers of the cluster are reached over sockets, as by everybody.
    """
    origin = RequestOrigin(name, ListenerName(listener), principal, client_host)

    def link(address: BrokerAddress) -> InProcessConnection | None:
        # Ids below 0 are those of bootstrap servers, and we are the only one.
        is_here = address.node_id < 0 or address.node_id == services.node_id
        return InProcessConnection(address, services, origin) if is_here else None

    return AsyncClient(
        settings or ClientSettings(_UNUSED_ADDRESS, client_id=f"headrace-{name}"),
        connection_factory=link,
        clock=services.clock,
        randomness=services.randomness,
    )
