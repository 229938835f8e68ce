"""What a route is: declared once, then routed, decoded and documented from the declaration.

TOPICS = Operations("topics")

@TOPICS.get("/topics/{topic}", "One topic with its partitions.", response=Topic, errors=(404,))
async def describe(call: HttpCall) -> Topic: ...
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from headrace.web import media
from headrace.web.call import HttpCall

Handler = Callable[[HttpCall], Awaitable[Any]]
H = TypeVar("H", bound=Handler)


class NoQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """For routes that take no query."""


class AnyQuery(msgspec.Struct, frozen=True):
    """For routes that ignore their query, as REST Proxy does."""


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
