"""The controller of this process, asked as a controller elsewhere would be."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.broker.fetch_rate_limiter import FetchRateLimiter
from headrace.broker.processor import RequestProcessor
from headrace.broker.request import DelayedOperation, RequestOrigin
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import NodeId
from headrace.core.listeners import ListenerType
from headrace.protocol.frames import RequestHeader
from headrace.protocol.message import Message
from headrace.security.principal import Principal

_LISTENER: Final = "in-process"


class LocalControllerChannel:
    """Hands requests to the handlers of this process, through the codec as a socket would.

    They need no permission: nobody but this broker can send one here.
    """

    def __init__(self, processor: Callable[[], RequestProcessor], node_id: NodeId) -> None:
        """`processor` is asked for with each request: those it needs may need this channel."""
        self._processor = processor
        self._client_id = f"broker-{node_id}"
        self._origin = RequestOrigin(
            Principal("Broker", str(node_id)),
            "/local",
            _LISTENER,
            ListenerType.CONTROLLER,
            is_this_broker=True,
        )

    async def send(self, request: Message) -> Message:
        """The response to `request`; raises `HeadraceError` if there is none."""
        processor = self._processor()
        api_key = request.schema.api_key
        versions = processor.versions(api_key, ListenerType.CONTROLLER)
        assert api_key is not None, "a response was sent as a request"
        assert versions is not None, f"{type(request).__name__} is not for controllers"
        _, version = versions
        header = RequestHeader(api_key, version, 0, self._client_id, 0)
        call = _Call(processor, self._origin)
        processor.receive(
            self._origin,
            header,
            memoryview(request.encode(version)),
            call,
            processor.services.request_metrics.now(),
        )
        return await call.response


class _Call:
    """One request, on a connection of its own: it waits for no other one."""

    def __init__(self, processor: RequestProcessor, origin: RequestOrigin) -> None:
        self.origin = origin
        self.delayed_operations: dict[DelayedOperation, None] = {}
        self.fetch_rate_limiter = FetchRateLimiter()
        self.response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._processor = processor

    @property
    def connection(self) -> "_Call":
        return self

    def mute(self) -> None:
        """Nothing is behind it."""

    def unmute(self) -> None:
        """Nothing is behind it."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._processor.start(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():  # the broker is stopping
            self.response.cancel()

    def encode(self, response: Message, version: int, _: int) -> Message:
        """The response as the other side of a socket would see it."""
        return type(response).decode(memoryview(response.encode(version)), version)

    def send(self, response: Message | None) -> None:
        assert response is not None, "requests to the controller are answered"
        if not self.response.done():
            self.response.set_result(response)

    def abort(self, reason: HeadraceError | None = None) -> None:
        if not self.response.done():
            self.response.set_exception(
                reason or ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller failed")
            )
