"""From a frame to its handler and back: the one place that turns exceptions into answers."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.broker.context import RequestContext, Services
from headrace.broker.long_requests import ITEMS_AT_ONCE, LongRequestContext, decode_in_worker
from headrace.broker.metering import ApiMetrics
from headrace.broker.produce_fast_path import observe
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
# How long a stop waits for requests under way.
CLOSE_TIMEOUT_SECONDS = 5


class Dispatcher:
    """Serves the requests of all connections of one node."""

    def __init__(self, services: Services, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._services = services
        self._now = services.request_metrics.now
        self._handlers: dict[int, tuple[Route, Handler, ApiMetrics]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, connection: "Connection", frame: memoryview) -> None:
        """Start one request. Raises what must cost the client its connection."""
        fast_path = connection.produce_fast_path
        if fast_path is not None and fast_path.serve(connection, frame):
            return
        started = self._now()
        header = decode_request_header(frame)
        if len(frame) > DECODED_BYTES_MAX and header.api_key != ApiKey.PRODUCE:
            raise MalformedMessage(f"{len(frame)} bytes are too many for API key {header.api_key}")
        version = header.api_version
        loaded = self._handlers.get(header.api_key) or self._load(header.api_key)
        route, handler, metrics = loaded
        if not route.lowest_served <= version <= route.highest_version:
            if header.api_key != ApiKey.API_VERSIONS:
                raise MalformedMessage(f"{route.api_key.name} v{version} is not supported")
            version = 0  # what every client can read; the handler sees `unsupported` below
        context = RequestContext(
            self._services,
            connection,
            header,
            connection.reserve_slot(),
            version,
            metrics,
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
                self._decode_in_worker(context, connection, handler, memoryview(bytearray(frame)))
                return
        self._handle(context, handler, request)
        if end == len(frame) and isinstance(request, ProduceRequest):
            observe(self._services, connection, frame, header, request, context.appended_to)

    def _handle(self, context: RequestContext, handler: Handler, request: Message) -> None:
        if handler.is_async:
            context.finish_in_task(self._run(context, handler, request))
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

    def _decode_in_worker(
        self,
        context: RequestContext,
        connection: "Connection",
        handler: Handler,
        frame: memoryview,
    ) -> None:
        """Serve a request of many items; `frame` is a copy, since others use the buffer.

        One that may be written to: the log patches batches where they are.
        """
        long_context = LongRequestContext(context, connection)

        async def run() -> None:
            try:
                request = await decode_in_worker(context, handler.request_class, frame)
                self._handle(long_context, handler, request)
            except HeadraceError as error:
                connection.close_on_error(error)

        context.finish_in_task(run())

    def _load(self, api_key: int) -> tuple[Route, Handler, ApiMetrics]:
        route = ROUTES.get(api_key)
        if route is None:
            raise MalformedMessage(f"API key {api_key} is not supported")
        loaded = (route, route.load(), self._services.request_metrics.for_api(api_key))
        self._handlers[api_key] = loaded
        return loaded

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what a request has to do later."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Let requests under way finish; their callers have stopped reading new ones."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                while self._tasks:  # one may begin another
                    await asyncio.wait(tuple(self._tasks))
        self.kill()

    def kill(self) -> None:
        """Let go of requests under way."""
        for task in self._tasks:
            task.cancel()


def refusal(handler: Handler, request: Message, error: HeadraceError) -> Message:
    """The answer to a request that is refused as a whole; without such a form, raises."""
    if handler.refuse is None:
        raise error
    return handler.refuse(request, error.code, str(error) or None)
