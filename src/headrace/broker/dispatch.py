"""From a frame to its handler and back: the one place that turns exceptions into answers."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headrace.broker.context import RequestContext, Services
from headrace.broker.long_requests import ITEMS_AT_ONCE, LongRequestContext, decode_in_worker
from headrace.broker.metering import ApiMeter
from headrace.broker.produce_fast_path import learn
from headrace.broker.routes import ROUTES, Handler, Route
from headrace.core.errors import HeadraceError, MalformedMessage, TooManyItems
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import decode_request_header
from headrace.protocol.message import Message
from headrace.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from headrace.broker.connection import Connection

logger = logging.getLogger(__name__)

# Only record batches stay bytes. Everything else becomes objects, at up to fifty times the
# size of the frame, so no frame made of them may be large.
DECODED_BYTES_MAX = 8 * 1024 * 1024


class Dispatcher:
    """Serves the requests of all connections of one node."""

    def __init__(self, services: Services, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._services = services
        self._now = services.meters.now
        self._handlers: dict[int, tuple[Route, Handler, ApiMeter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, connection: "Connection", frame: memoryview) -> None:
        """Start one request. Raises what must cost the client its connection."""
        path = connection.produce_fast_path
        if path is not None and path.serve(connection, frame):
            return
        started = self._now()
        header = decode_request_header(frame)
        if len(frame) > DECODED_BYTES_MAX and header.api_key != ApiKey.PRODUCE:
            raise MalformedMessage(f"{len(frame)} bytes are too many for API key {header.api_key}")
        version = header.api_version
        loaded = self._handlers.get(header.api_key) or self._load(header.api_key)
        route, handler, meter = loaded
        if not route.lowest_served <= version <= route.highest_version:
            if header.api_key != ApiKey.API_VERSIONS:
                raise MalformedMessage(f"{route.api_key.name} v{version} is not supported")
            version = 0  # what every client can read; the handler sees `unsupported` below
        context = RequestContext(
            self._services,
            connection,
            header,
            connection.answer_later(),
            version,
            meter,
            started,
            len(frame),
        )
        request: Message
        end = -1
        if version != header.api_version:
            request = handler.request_class()
        else:
            try:
                # Like Kafka, deaf to bytes behind the request: librdkafka sends some.
                request, end = handler.request_class.decode_from(
                    frame, version, header.body_position, ITEMS_AT_ONCE
                )
            except TooManyItems:
                self._go_on_in_worker(context, connection, handler, bytearray(frame))
                return
        self._handle(context, connection, handler, request)
        if end == len(frame) and isinstance(request, ProduceRequest):
            learn(self._services, connection, frame, header, request, context.appended_to)

    def _handle(
        self,
        context: RequestContext,
        connection: "Connection",
        handler: Handler,
        request: Message,
    ) -> None:
        if handler.is_async:
            self._start(self._run(context, handler, request), connection)
            return
        try:
            response = handler.call(context, request)
        except HeadraceError as error:
            response = refusal(handler, request, error)
        if response is not None:
            context.reply(response)  # type: ignore[arg-type]  # only async handlers return awaitables

    async def _run(self, context: RequestContext, handler: Handler, request: Message) -> None:
        try:
            response = await handler.call(context, request)  # type: ignore[misc]  # is_async
        except HeadraceError as error:
            response = refusal(handler, request, error)
        context.reply(response)

    def _go_on_in_worker(
        self,
        context: RequestContext,
        connection: "Connection",
        handler: Handler,
        frame: bytearray,
    ) -> None:
        """Serve a request of many items; `frame` is a copy, since others use the buffer."""
        long_context = LongRequestContext(context, connection, self._start)

        async def run() -> None:
            try:
                request = await decode_in_worker(context, handler.request_class, frame)
                self._handle(long_context, connection, handler, request)
            except HeadraceError as error:
                connection.refuse(error)

        self._start(run(), connection)

    def _load(self, api_key: int) -> tuple[Route, Handler, ApiMeter]:
        route = ROUTES.get(api_key)
        if route is None:
            raise MalformedMessage(f"API key {api_key} is not supported")
        loaded = (route, route.load(), self._services.meters.of(api_key))
        self._handlers[api_key] = loaded
        return loaded

    def _start(self, work: Coroutine[Any, Any, None], connection: "Connection") -> None:
        """Go on with a request; the next one of its connection has to wait for that."""
        connection.hold()
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finished(done, connection))

    def _finished(self, task: asyncio.Task[None], connection: "Connection") -> None:
        self._tasks.discard(task)
        connection.go_on()
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error(
                "request failed, closing connection: client=%s",
                connection.client_host,
                exc_info=error,
            )
            connection.close()

    async def close(self) -> None:
        """Let requests under way finish; their callers have stopped reading new ones."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        for task in self._tasks:
            task.cancel()


def refusal(handler: Handler, request: Message, error: HeadraceError) -> Message:
    """The answer to a request that is refused as a whole; without such a form, raises."""
    if handler.refuse is None:
        raise error
    return handler.refuse(request, error.code, str(error) or None)
