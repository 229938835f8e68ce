"""One request on its way through a handler, and its client, who may go away meanwhile."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.web import media
from headrace.web.asgi import CONNECTION, SLASH, Receive, Scope, Send
from headrace.web.errors import HttpError
from headrace.web.state import HttpState

if TYPE_CHECKING:
    from headrace.gateway import Gateway

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1


class ClientDisconnected(Exception):
    """The client has closed its connection: there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class PathParameter:
    """One `{name}` of a path."""

    description: str
    is_number: bool = False


PATH_PARAMETERS: Final[dict[str, PathParameter]] = {
    "topic": PathParameter("Name of a topic."),
    "partition": PathParameter("Number of a partition, from 0.", is_number=True),
    "group": PathParameter("Name of a consumer group."),
    "instance": PathParameter("Name of a consumer instance, as given when it was created."),
    "broker": PathParameter("Number of a broker.", is_number=True),
    "asset": PathParameter("Name of a file of this page."),
}


class HttpCall:
    """One request on its way through a handler."""

    __slots__ = (
        "body",
        "held_bytes",
        "is_interrupted",
        "media",
        "path",
        "query",
        "receive",
        "response_headers",
        "scope",
        "send",
        "state",
    )

    def __init__(self, state: HttpState, scope: Scope, receive: Receive, send: Send) -> None:
        self.state = state
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path: dict[str, str] = scope.get("path_params") or {}
        if SLASH in scope["path"]:
            self.path = {name: text.replace(SLASH, "/") for name, text in self.path.items()}
        self.query: Any = None
        self.body: Any = None
        self.media = media.JSON
        """The content type of the answer."""
        self.response_headers: list[tuple[bytes, bytes]] = []
        self.held_bytes = 0
        """What of the body counts against the listener's limit."""
        self.is_interrupted = False
        """The client has gone while something was waited for."""

    @property
    def gateway(self) -> "Gateway":
        return self.state.gateway

    @property
    def is_gone(self) -> bool:
        """Whether the connection is known to be closed."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and connection.transport.is_closing()

    def hold_bytes(self, count: int) -> None:
        """So many bytes of the body are held from now on; refused if that is too many."""
        self.state.body_memory.resize(self.held_bytes, count)
        self.held_bytes = count

    def abort(self) -> None:
        """Drop the connection, with what its client has not read yet."""
        connection = self.scope.get(CONNECTION)
        if connection is not None:
            connection.transport.abort()

    def header(self, name: bytes) -> bytes | None:
        """A request header by its name in small letters."""
        for each, value in self.scope["headers"]:
            if each == name:
                found: bytes = value
                return found
        return None

    def number(self, name: str) -> int:
        """A path parameter that is a number."""
        text = self.path[name]
        if not (text.isascii() and text.isdecimal()) or int(text[:11]) > INT32_MAX:
            raise HttpError(
                404, f"{name} {text[:40]!r} is not a number", hint=PATH_PARAMETERS[name].description
            )
        return int(text)


async def while_connected(call: HttpCall, work: Coroutine[Any, Any, T]) -> T:
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


async def _wait_for_disconnect(call: HttpCall) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
