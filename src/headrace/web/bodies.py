"""Request bodies: read within a limit, decoded into the type that a route declares."""

import asyncio
import re
from collections.abc import AsyncIterator, MutableMapping
from typing import Any, Final

import msgspec

from headrace.web.call import ClientDisconnected, HttpCall
from headrace.web.errors import HttpError
from headrace.web.limits import CLOSE
from headrace.web.validation_messages import validation_message

_WRONG_TYPE: Final = re.compile("Expected `[^`]+`, got `")


async def chunks(call: HttpCall) -> AsyncIterator[bytes]:
    """The parts of a stream as they come in; a client that stops in the middle is refused."""
    seconds = call.state.settings.request_timeout_ms / 1000
    while True:
        message = await _next_part(call, seconds)
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _next_part(call: HttpCall, seconds: float) -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout(seconds):
            message = await call.receive()
    except TimeoutError:
        raise HttpError(
            408,
            "the body stood still, or came too slowly",
            hint="what takes long is sent as a stream of lines, application/x-ndjson",
            headers=(CLOSE,),
        ) from None
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message


async def read_whole(call: HttpCall) -> bytes:
    """The whole body, unless it is larger than the listener takes at once, or comes too slowly."""
    settings = call.state.settings
    limit = settings.body_bytes_max
    announced = call.header(b"content-length")
    if announced is not None and announced.isdigit() and int(announced[:20]) > limit:
        raise too_large(limit)
    patience = settings.request_timeout_ms / 1000
    first = await _next_part(call, patience)
    body: bytes = first.get("body", b"")
    if first.get("more_body"):
        body = await _read_rest(call, body, patience)
    if len(body) > limit:
        raise too_large(limit)
    return body


async def _read_rest(call: HttpCall, begun: bytes, patience: float) -> bytes:
    """What comes behind the first part. Who sends next to nothing is not waited for either."""
    settings = call.state.settings
    now = asyncio.get_running_loop().time
    started = now()
    parts = bytearray(begun)
    while True:
        call.hold_bytes(len(parts))
        due = started + patience + len(parts) / settings.body_bytes_per_second_min
        message = await _next_part(call, min(patience, max(0.0, due - now())))
        parts += message.get("body", b"")
        if len(parts) > settings.body_bytes_max:
            raise too_large(settings.body_bytes_max)
        if not message.get("more_body"):
            return bytes(parts)


def too_large(limit: int) -> HttpError:
    return HttpError(
        41301,
        f"the body is larger than {limit} bytes",
        hint="send less at once, or stream application/x-ndjson to POST /topics/{topic}",
        headers=(CLOSE,),
    )


def decode(decoder: "msgspec.json.Decoder[Any]", body: bytes, *, wrong_type: int = 422) -> Any:
    """The typed body; malformed JSON, wrong types and what is missing are told apart."""
    try:
        # What is kept undecoded (`Raw`) is not checked by the decoder.
        body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message = validation_message(decoder.type, error)
        code = wrong_type if _WRONG_TYPE.match(message) else 422
        raise HttpError(code, message, hint="see /docs for what this route takes") from None
    except msgspec.DecodeError as error:
        raise HttpError(400, f"the body is not valid JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise HttpError(400, f"the body is not UTF-8: {error.reason} at {error.start}") from None
    except RecursionError:
        raise HttpError(400, "the body is nested too deeply") from None
