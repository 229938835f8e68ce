"""What a broker asks the controller for on its own account.

    topics to create, producer ids ──> ControllerRequests ──> ControllerChannel ──> controller

It asks in Kafka's own requests, whether the controller is in this process or in another one, so
nothing here knows a command of the controller. This is the lowest package in which that can be
said: requests are messages, and who the active controller is will be read from the metadata.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.protocol.message import Message

logger = logging.getLogger(__name__)

# For so long a refusal is not asked for again; clients come back after 100 ms.
RETRY_BACKOFF_SECONDS: Final = 0.05

FailuresIn = Callable[[Message], Mapping[str, HeadraceError]]
"""Which of the things asked for a response refuses."""


class ControllerChannel(Protocol):
    """The way to the active controller, wherever that is."""

    async def send(self, request: Message) -> Message:
        """The response to `request`; raises `HeadraceError` if there is none."""
        ...


class ControllerRequests:
    """Asks for each thing once at a time, however many want it.

    Who wants what is being asked for already waits for the same response. What was refused is
    refused for a moment longer without being asked for again. A refusal leaves one log line.
    """

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self._under_way: dict[str, asyncio.Future[Message]] = {}
        self._refused: dict[str, HeadraceError] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(
        self,
        keys: Iterable[str],
        request_for: Callable[[list[str]], Message],
        failures_in: FailuresIn,
    ) -> dict[str, asyncio.Future[Message]]:
        """A response for each of `keys`, shared with others: to be awaited under a shield.

        `request_for` makes one request for those that nobody asks for yet.
        """
        loop = asyncio.get_running_loop()
        found: dict[str, asyncio.Future[Message]] = {}
        fresh: list[str] = []
        for key in dict.fromkeys(keys):
            under_way = self._under_way.get(key)
            if under_way is not None:
                found[key] = under_way
                continue
            response = found[key] = loop.create_future()
            response.add_done_callback(_mark_as_seen)
            refusal = self._refused.get(key)
            if refusal is not None:
                response.set_exception(refusal)
                continue
            self._under_way[key] = response
            fresh.append(key)
        if fresh:
            task = loop.create_task(self._send(fresh, request_for(fresh), failures_in))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return found

    async def _send(self, keys: list[str], request: Message, failures_in: FailuresIn) -> None:
        failures: Mapping[str, HeadraceError] = {}
        response: Message | None = None
        try:
            response = await self._channel.send(request)
            failures = failures_in(response)
        except HeadraceError as error:
            failures = dict.fromkeys(keys, error)
        except Exception:
            # A mistake of ours. Were the futures cancelled for it, whoever waits would be taken
            # for one that the broker stops, and its client would wait for ever.
            logger.exception("the controller could not be asked: for=%s", keys)
            mistake = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller could not be asked")
            failures = dict.fromkeys(keys, mistake)
        finally:
            for key in keys:
                self._finish(key, response, failures.get(key), type(request).__name__)

    def _finish(
        self, key: str, response: Message | None, failure: HeadraceError | None, request: str
    ) -> None:
        future = self._under_way.pop(key)
        if failure is not None:
            logger.warning(
                "the controller refused a request: request=%s for=%s error=%s reason=%s",
                request,
                key,
                failure.code.name,
                failure,
            )
            self._refused[key] = failure
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_BACKOFF_SECONDS, self._refused.pop, key, None)
            future.set_exception(failure)
        elif response is not None:
            future.set_result(response)
        else:  # the broker is stopping
            future.cancel()

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _mark_as_seen(response: "asyncio.Future[Message]") -> None:
    """Nobody may be waiting for it, and a refusal was logged."""
    if not response.cancelled():
        response.exception()
