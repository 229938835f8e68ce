"""What a route is: declared once, then routed, decoded and documented from the declaration.

TOPICS = Operations("topics")

@TOPICS.get("/topics/{topic}", "One topic with its partitions.", response=Topic, errors=(404,))
async def describe(call: Call) -> Topic: ...
"""

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headrace.web import media
from headrace.web.errors import HttpError

if TYPE_CHECKING:
    from headrace.gateway import Gateway
    from headrace.web.state import HttpState

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler = Callable[["Call"], Awaitable[Any]]
H = TypeVar("H", bound=Handler)

INT32_MAX: Final = 2**31 - 1
SLASH: Final = "\udc2f"
"""Stands for a slash within a part of a path; no path that is sent can have it."""
CONNECTION: Final = "headrace.connection"
"""Where the server puts the connection of a request in its scope."""


class NoQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """For routes that take no query."""


class AnyQuery(msgspec.Struct, frozen=True):
    """For routes that ignore their query, as REST Proxy does."""


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


class Call:
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

    def __init__(self, state: "HttpState", scope: Scope, receive: Receive, send: Send) -> None:
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


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path: what it takes, what it answers, and who does it."""

    method: str
    path: str
    summary: str
    tag: str
    handler: Handler
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    body_required: bool = True
    consumes: tuple[str, ...] = media.METADATA
    response: Any = None
    """The type of the answer, or several."""
    status: int = 200
    produces: tuple[str, ...] = media.METADATA
    errors: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()
    """Request headers that mean something to this operation."""
    is_raw: bool = False
    """The handler reads the body and writes the answer by itself."""
    chooses_media: bool = False
    """What may be answered depends on more than the route: the handler finds the type."""


PROXY: Final[dict[str, Any]] = {
    "query": AnyQuery,
    "consumes": media.PROXY,
    "produces": media.PROXY,
}
"""How the paths of REST Proxy v2 are declared: liberal in what they take, its type by default."""

# What headers of requests mean, for the document.
HEADERS: Final = {
    "Idempotency-Key": "A name for this request: sent again, it changes nothing and is answered "
    "as the first time.",
    "Last-Event-ID": "The id of the last event seen: the stream goes on right behind it.",
}


@dataclass(slots=True)
class Operations:
    """The operations of one noun, in the order of their declaration."""

    tag: str
    defaults: dict[str, Any] = field(default_factory=dict)
    """What every operation here has unless it says otherwise."""
    _declared: list[Operation] = field(default_factory=list)

    def get(self, path: str, summary: str, **more: Any) -> Callable[[H], H]:
        return self._declare("GET", path, summary, more)

    def post(self, path: str, summary: str, **more: Any) -> Callable[[H], H]:
        return self._declare("POST", path, summary, more)

    def patch(self, path: str, summary: str, **more: Any) -> Callable[[H], H]:
        return self._declare("PATCH", path, summary, more)

    def delete(self, path: str, summary: str, **more: Any) -> Callable[[H], H]:
        return self._declare("DELETE", path, summary, more)

    def _declare(
        self, method: str, path: str, summary: str, more: dict[str, Any]
    ) -> Callable[[H], H]:
        def declare(handler: H) -> H:
            known = {**self.defaults, **more}
            self._declared.append(Operation(method, path, summary, self.tag, handler, **known))
            return handler

        return declare

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._declared)
