"""From an ASGI request to a handler and back: the one place where errors become answers."""

import asyncio
import logging
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from headrace.core.errors import HeadraceError
from headrace.web import bodies, media
from headrace.web.asgi import Receive, Scope, Send
from headrace.web.call import ClientDisconnected, HttpCall
from headrace.web.errors import HttpError, http_error_of
from headrace.web.operations import Operation
from headrace.web.validation_messages import validation_message

if TYPE_CHECKING:
    from headrace.web.state import HttpState

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_QUERY_FIELDS_MAX = 100


class RouteHandler:
    """All operations of one path, as an ASGI application."""

    def __init__(self, state: "HttpState", operations: Sequence[Operation]) -> None:
        self._state = state
        self._path = operations[0].path
        self._by_method = {operation.method: operation for operation in operations}
        get = self._by_method.get("GET")
        if get is not None and not get.is_raw:  # those may stream, or move a consumer
            self._by_method["HEAD"] = get
        self._decoders = {
            operation.method: msgspec.json.Decoder(operation.body)
            for operation in operations
            if operation.body is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._state.request_counts.add(method, self._path, message["status"])
            await send(message)

        call = HttpCall(self._state, scope, receive, counted)
        try:
            await self._serve(call, method)
        finally:
            if call.held_bytes:
                call.hold_bytes(0)

    async def _serve(self, call: HttpCall, method: str) -> None:
        scope = call.scope
        try:
            operation = self._by_method.get(method)
            if operation is None:
                raise self._wrong_method(method)
            # Where nothing is to be told, no type is wrong.
            if operation.response is not None and not operation.chooses_media:
                call.media = media.response_type(call.header(b"accept"), operation.produces)
            call.query = read_query(scope["query_string"], operation.query)
            if operation.is_raw:
                await operation.handler(call)
                return
            if operation.body is not None:
                call.body = await self._body(call, operation)
            result = await operation.handler(call)
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            if call.is_interrupted:
                return
            raise
        except HeadraceError as error:
            await send_error(call.send, http_error_of(error))
            return
        except Exception:
            logger.exception("an HTTP request failed: method=%s path=%s", method, scope["raw_path"])
            hint = "this is a fault of the broker; its log says more"
            await send_error(call.send, HttpError(500, "internal error", hint=hint))
            return
        await send_response(call, operation.status, result)

    async def _body(self, call: HttpCall, operation: Operation) -> Any:
        body = await bodies.read_whole(call)
        if not body and not operation.body_required:
            return None
        media.content_type(call.header(b"content-type"), operation.consumes)
        return bodies.decode(self._decoders[operation.method], body)

    def _wrong_method(self, method: str) -> HttpError:
        allowed = ", ".join(sorted(self._by_method))
        return HttpError(
            405,
            f"{method[:20]} is not possible here",
            hint=f"possible: {allowed}",
            headers=((b"allow", allowed.encode()),),
        )


def read_query(text: bytes, kind: type[msgspec.Struct]) -> Any:
    """The query of a URL as the type that a route declares."""
    if not text:
        pairs: dict[str, str] = {}
    else:
        try:
            pairs = dict(
                parse_qsl(
                    text.decode("ascii"),
                    keep_blank_values=True,
                    errors="strict",
                    max_num_fields=_QUERY_FIELDS_MAX,
                )
            )
        except ValueError as error:  # not UTF-8, or too many
            raise HttpError(400, f"the query cannot be read: {error}") from None
    try:
        return msgspec.convert(pairs, kind, strict=False)
    except msgspec.ValidationError as error:
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        hint = f"the query may have: {fields}" if fields else "this route takes no query"
        raise HttpError(
            422, f"in the query: {validation_message(kind, error)}", hint=hint
        ) from None


async def send_response(call: HttpCall, status: int, result: Any) -> None:
    """A whole answer: a value as JSON, bytes as they are, None as no content."""
    if result is None:
        await send_bytes(call.send, 204 if status == 200 else status, b"", [])
        return
    body = result if isinstance(result, bytes) else _encode(result)
    headers = [(b"content-type", call.media.encode()), *call.response_headers]
    await send_bytes(call.send, status, body, headers)


async def send_error(send: Send, error: HttpError) -> None:
    """An error as JSON, whatever type was asked for."""
    headers = [(b"content-type", b"application/json"), *error.headers]
    await send_bytes(send, error.status, _encode(error.body()), headers)


async def send_bytes(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    if status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
