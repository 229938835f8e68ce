"""Request bodies: read within a limit, decoded into the type that a route declares."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.web.errors import HttpError
from headrace.web.operations import Receive

if TYPE_CHECKING:
    from headrace.web.settings import WebSettings


class ClientGone(Exception):
    """The client has closed its connection: there is nobody to answer."""


async def chunks(receive: Receive, settings: "WebSettings") -> AsyncIterator[bytes]:
    """The parts of a body as they come in; a client that stops in the middle is refused."""
    while True:
        message = await _next_part(receive, settings)
        if message["type"] == "http.disconnect":
            raise ClientGone
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _next_part(receive: Receive, settings: "WebSettings") -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout(settings.request_timeout_ms / 1000):
            return await receive()
    except TimeoutError:
        raise HttpError(
            408,
            f"the body stood still for {settings.request_timeout_ms} ms",
            headers=((b"connection", b"close"),),
        ) from None


async def whole(receive: Receive, settings: "WebSettings", announced: bytes | None) -> bytes:
    """The whole body, unless it is larger than the door takes at once."""
    limit = settings.body_bytes_max
    if announced is not None and announced.isdigit() and int(announced[:20]) > limit:
        raise too_large(limit)
    first = await _next_part(receive, settings)
    if first["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = first.get("body", b"")
    if first.get("more_body"):
        parts = bytearray(body)
        async for part in chunks(receive, settings):
            parts += part
            if len(parts) > limit:
                raise too_large(limit)
        body = bytes(parts)
    if len(body) > limit:
        raise too_large(limit)
    return body


def too_large(limit: int) -> HttpError:
    return HttpError(
        41301,
        f"the body is larger than {limit} bytes",
        hint="send less at once, or stream application/x-ndjson to POST /topics/{topic}",
        headers=((b"connection", b"close"),),
    )


def decode(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    """The typed body; malformed JSON and wrong types are told apart."""
    try:
        # What is kept undecoded (`Raw`) is not checked by the decoder.
        body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise HttpError(422, str(error), hint="see /docs for what this route takes") from None
    except msgspec.DecodeError as error:
        raise HttpError(400, f"the body is not valid JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise HttpError(400, f"the body is not UTF-8: {error.reason} at {error.start}") from None
    except RecursionError:
        raise HttpError(400, "the body is nested too deeply") from None
