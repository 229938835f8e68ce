"""What all requests of the HTTP API share: the gateway, the limits, and whose turn it is."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.web.bodies import ClientDisconnected, MemoryBudget
from headrace.web.errors import TOO_MANY, HttpError
from headrace.web.group_metrics import GroupMetrics
from headrace.web.http_metrics import HttpMetrics, RequestCounts
from headrace.web.metrics import Source
from headrace.web.settings import WebSettings

if TYPE_CHECKING:
    from headrace.gateway import Gateway
    from headrace.web.operations import Call

T = TypeVar("T")


class LoopSlices:
    """One piece of work in each turn of the event loop, over all HTTP requests.

    Between two pieces the loop serves every other socket, so a Kafka request waits for at most
    one piece however many HTTP requests there are. Pieces are small by construction: some
    hundred records.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        # Whoever is next is woken by the loop, after it has looked at its sockets.
        self._lock.release()
        await asyncio.sleep(0)


class StreamLimit:
    """How many streams are open, within the listener's limit."""

    __slots__ = ("_open", "_streams_max")

    def __init__(self, streams_max: int) -> None:
        self._open = 0
        self._streams_max = streams_max

    def __len__(self) -> int:
        return self._open

    def __enter__(self) -> None:
        if self._open >= self._streams_max:
            raise HttpError(
                TOO_MANY,
                f"{self._open} streams are open, more are not served at once",
                hint="close one, or raise http.max.streams",
            )
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1


class HttpState:
    """The state behind the routes of one HTTP server."""

    def __init__(
        self,
        gateway: "Gateway",
        settings: WebSettings,
        *,
        sources: Sequence[Source] = (),
    ) -> None:
        from headrace.web.instances import Instances

        self.gateway = gateway
        self.settings = settings
        self.request_counts = RequestCounts()
        groups = GroupMetrics(
            lambda: gateway.admin, lambda: gateway.client.requests.now_ms() / 1000
        )
        self.sources = (*sources, HttpMetrics(self), groups)
        self.is_stopping = False
        self.disconnect_waits: set[asyncio.Future[None]] = set()
        """Ends of clients that something waits for; all of them end when the listener closes."""
        self.loop_slices = LoopSlices()
        self.body_memory = MemoryBudget(settings.held_bytes_max)
        self.stream_limit = StreamLimit(settings.streams_max)
        self.instances: Instances = Instances(settings)

    def stop_waiting(self) -> None:
        """End streams and long polls."""
        self.is_stopping = True
        for watch in list(self.disconnect_waits):
            watch.cancel()

    async def close(self) -> None:
        """Let consumers leave their groups."""
        await self.instances.close()


async def while_connected(call: "Call", work: Coroutine[Any, Any, T]) -> T:
    """Do something that waits, unless the client goes away or the listener closes meanwhile."""
    task = asyncio.current_task()
    assert task is not None
    gone = asyncio.ensure_future(_wait_for_disconnect(call))

    def interrupt(_: object) -> None:
        call.is_interrupted = True
        task.cancel()

    gone.add_done_callback(interrupt)
    call.state.disconnect_waits.add(gone)
    try:
        return await work
    except asyncio.CancelledError:
        if not call.is_interrupted:
            raise
        task.uncancel()
        raise ClientDisconnected from None
    finally:
        call.state.disconnect_waits.discard(gone)
        gone.remove_done_callback(interrupt)
        gone.cancel()


async def _wait_for_disconnect(call: "Call") -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
