"""From a request to its handler and back: the one place that turns exceptions into responses.

Every request of the process goes through here, whether its bytes came over a socket or a client
in the process made it: the bounds, the choice of the handler, the shape of refusals and the order
of what is asked one after the other are the same for all.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

from headrace.broker.long_requests import ITEMS_AT_ONCE, decode_in_worker, is_long
from headrace.broker.metering import ApiMetrics
from headrace.broker.request import RequestContext, RequestOrigin, ResponseSink
from headrace.broker.routes import ROUTES, ROUTES_ON, Handler, Route
from headrace.broker.services import Services
from headrace.core.errors import HeadraceError, MalformedMessage, TooManyItems
from headrace.core.listeners import ListenerType
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import RequestHeader
from headrace.protocol.message import Message

# Only record batches stay bytes. Everything else becomes objects, at up to fifty times the
# size of the frame, so no frame made of them may be large.
DECODED_BYTES_MAX: Final = 8 * 1024 * 1024
# How long a stop waits for requests under way.
CLOSE_TIMEOUT_SECONDS: Final = 5


class ServedApi(NamedTuple):
    """What it takes to serve one API."""

    route: Route
    handler: Handler
    metrics: ApiMetrics


class RequestProcessor:
    """Serves the requests of one node."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._apis: dict[int, ServedApi] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(
        self,
        origin: RequestOrigin,
        header: RequestHeader,
        frame: memoryview,
        sink: ResponseSink,
        started: float,
    ) -> tuple[RequestContext, Message, int] | None:
        """Start a request that is still bytes; its body starts at `header.body_position`.

        Raises what cannot be answered. Returns the request and where its bytes end, or None if it
        goes on in a worker; `frame` may be used again by then.
        """
        api_key, version = header.api_key, header.api_version
        if len(frame) > DECODED_BYTES_MAX and api_key != ApiKey.PRODUCE:
            raise MalformedMessage(f"{len(frame)} bytes are too many for API key {api_key}")
        route, handler, metrics = self._apis.get(api_key) or self._load(api_key)
        if origin.listener_type not in route.listeners:
            raise MalformedMessage(f"{route.api_key.name} is not served on {origin.listener}")
        if not route.lowest_served <= version <= route.highest_version:
            if api_key != ApiKey.API_VERSIONS:
                raise MalformedMessage(f"{route.api_key.name} v{version} is not supported")
            version = 0  # what every client can read; the handler sees which one was asked for
        context = RequestContext(
            self.services, origin, header, sink, version, metrics, started, len(frame)
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
                # A copy that may be written to: the log patches batches where they are.
                self._decode_in_worker(context, handler, memoryview(bytearray(frame)))
                return None
        self._call(context, handler, request)
        return context, request, end

    def handle(
        self, origin: RequestOrigin, header: RequestHeader, request: Message, sink: ResponseSink
    ) -> None:
        """Start a request that is a message already, in a version that is served.

        Raises what cannot be answered.
        """
        _, handler, metrics = self._apis.get(header.api_key) or self._load(header.api_key)
        context = RequestContext(
            self.services, origin, header, sink, header.api_version, metrics, metrics.now(), 0
        )
        context.is_long = is_long(request)
        self._call(context, handler, request)

    def _load(self, api_key: int) -> ServedApi:
        route = ROUTES.get(api_key)
        if route is None:
            raise MalformedMessage(f"API key {api_key} is not supported")
        api = ServedApi(route, route.load(), self.services.request_metrics.for_api(api_key))
        self._apis[api_key] = api
        return api

    def versions(self, api_key: int | None, listener_type: ListenerType) -> tuple[int, int] | None:
        """The lowest and highest version of an API that are served; None where it is not."""
        route = None if api_key is None else ROUTES_ON[listener_type].get(api_key)
        return None if route is None else (route.lowest_served, route.highest_version)

    def _call(self, context: RequestContext, handler: Handler, request: Message) -> None:
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
            try:
                response = refusal(handler, request, error)
            except HeadraceError as unanswerable:
                context.abort(unanswerable)
                return
        context.reply(response)

    def _decode_in_worker(
        self, context: RequestContext, handler: Handler, frame: memoryview
    ) -> None:
        """Serve a request of many items."""
        context.is_long = True

        async def run() -> None:
            try:
                request = await decode_in_worker(context, handler.request_class, frame)
                self._call(context, handler, request)
            except HeadraceError as error:
                context.abort(error)

        context.finish_in_task(run())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what a request has to do later."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Let requests under way finish; their callers have stopped sending new ones."""
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
    """The response to a request that is refused as a whole; without such a form, raises."""
    if handler.refuse is None:
        raise error
    return handler.refuse(request, error.code, str(error) or None)
