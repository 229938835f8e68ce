"""The application: every noun's routes, the documents about them, and a guard in front."""

from functools import cache
from itertools import chain
from urllib.parse import unquote

import msgspec
from starlette.routing import Route, Router

from headrace.web.asgi import SLASH, Receive, Scope, Send
from headrace.web.cluster import CLUSTER
from headrace.web.consumers import CONSUMERS
from headrace.web.errors import HttpError
from headrace.web.groups import GROUPS
from headrace.web.host_origin_filter import HostOriginFilter
from headrace.web.operations import Operation
from headrace.web.pages import PAGES
from headrace.web.produce import RECORDS
from headrace.web.read import READ
from headrace.web.route_handler import RouteHandler, send_error
from headrace.web.state import HttpState
from headrace.web.streams import STREAMS
from headrace.web.topics import TOPICS

# In the order in which a request is compared with them: the busiest first.
OPERATIONS: tuple[Operation, ...] = tuple(
    chain(RECORDS, READ, STREAMS, CONSUMERS, GROUPS, TOPICS, CLUSTER, PAGES)
)


@cache
def _openapi_document() -> bytes:
    from headrace.web.openapi import document  # most servers are never asked for it

    return msgspec.json.encode(document(OPERATIONS))


def create_app(state: HttpState) -> HostOriginFilter:
    """An ASGI application over one `HttpState`."""
    state.openapi_document = _openapi_document
    by_path: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    routes = [
        Route(path, endpoint=RouteHandler(state, operations))
        for path, operations in by_path.items()
    ]
    # Starlette's router without its application around it: errors are answered by endpoints.
    router = Router(routes=routes, redirect_slashes=False, default=_not_found)
    return HostOriginFilter(_EncodedSlashes(router), state.settings)


class _EncodedSlashes:
    """Wraps a router: a slash that is part of a name, `%2F`, does not part the path.

    One at the end of a path means nothing, as in REST Proxy.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        if b"%2F" in raw or b"%2f" in raw:
            parts = (unquote(part) for part in raw.decode("ascii").split("/"))
            path = "/".join(part.replace("/", SLASH) for part in parts)
            scope = {**scope, "path": path}
        if scope["path"].endswith("/") and scope["path"] != "/":
            scope = {**scope, "path": scope["path"][:-1]}
        await self._router(scope, receive, send)


async def _not_found(_scope: Scope, _receive: Receive, send: Send) -> None:
    error = HttpError(404, "there is nothing at this path", hint="GET /docs shows what there is")
    await send_error(send, error)
