"""Frames: a four-byte length, a header, and a message.

A flexible request has header v2 (tagged fields after the client id), a flexible response
header v1 (tagged fields after the correlation id). ApiVersions is the exception: its response
header is always v0, since a client that asks for it cannot know yet what the broker speaks.
Buffers given to the decoders start after the four length bytes.
"""

from struct import Struct as Format
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple, TypeVar, cast

from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer, Part
from headrace.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from headrace.protocol.message import Message
from headrace.protocol.wire import decode_varint, skip_tagged_fields

_NEVER: Final = 1 << 15
_REQUEST_HEADER: Final = Format(">hhih")
_RESPONSE_PREFIX: Final = Format(">ii")
_CORRELATION_ID: Final = Format(">i")
_LENGTH: Final = Format(">i")

# ApiVersions is left out: its response header never gets tagged fields.
_TAGGED_RESPONSE_FROM: Final = {
    key: version for key, version in FLEXIBLE_FROM.items() if key != ApiKey.API_VERSIONS
}

_new_tuple = tuple.__new__

M = TypeVar("M", bound=Message)


class RequestHeader(NamedTuple):
    """What comes before every request; the body starts at `body_position`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def decode_request_header(buffer: Buffer) -> RequestHeader:
    """Read a request header; for an unknown API only the fixed part is trusted."""
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(buffer, 0)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(buffer):
                raise MalformedMessage("client id runs past the end of the request")
            client_id = str(buffer[10:position], "utf-8")
        elif length != -1:
            raise MalformedMessage("client id has a negative length")
        if version >= FLEXIBLE_FROM.get(api_key, _NEVER):
            count, position = decode_varint(buffer, position)
            if count:
                position = skip_tagged_fields(buffer, position, count)
    except (StructError, IndexError, ValueError) as error:
        raise MalformedMessage(f"request header: {error}") from None
    # tuple.__new__ skips the keyword handling of the named tuple's own constructor.
    return _new_tuple(RequestHeader, (api_key, version, correlation_id, client_id, position))


def encode_request_parts(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A whole request frame in parts, with large record batches left uncopied."""
    schema = message.schema
    assert schema.api_key is not None, "only requests have an API key"
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = _REQUEST_HEADER.pack(schema.api_key, version, correlation_id, length) + name
    if schema.is_flexible(version):
        header += b"\0"
    # What a client sends lies in no file.
    parts = cast(list[Buffer], message.encode_parts(version))
    size = len(header) + sum(map(len, parts))
    parts[0] = b"".join((_LENGTH.pack(size), header, parts[0]))
    return parts


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """A whole request frame, length included."""
    return b"".join(encode_request_parts(message, version, correlation_id, client_id))


def encode_response_parts(message: Message, version: int, correlation_id: int) -> list[Part]:
    """A whole response frame in parts, with large record batches left where they are."""
    parts = message.encode_parts(version)
    size = 4 + (len(parts[0]) if len(parts) == 1 else sum(map(len, parts)))
    key = message.schema.api_key
    assert key is not None, "only responses have an API key"
    if version >= _TAGGED_RESPONSE_FROM.get(key, _NEVER):
        prefix = _RESPONSE_PREFIX.pack(size + 1, correlation_id) + b"\0"
    else:
        prefix = _RESPONSE_PREFIX.pack(size, correlation_id)
    # A message begins with bytes of its own, whatever it holds.
    parts[0] = prefix + cast(Buffer, parts[0])
    return parts


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """A whole response frame, length included; of a message that has all its bytes."""
    return b"".join(cast(list[Buffer], encode_response_parts(message, version, correlation_id)))


def decode_response(cls: type[M], buffer: Buffer, version: int) -> tuple[int, M]:
    """Read a response frame of which the length has been taken off."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, 0)
        position = 4
        if version >= _TAGGED_RESPONSE_FROM.get(cls.schema.api_key or 0, _NEVER):
            count, position = decode_varint(buffer, position)
            position = skip_tagged_fields(buffer, position, count)
    except (StructError, IndexError) as error:
        raise MalformedMessage(f"response header: {error}") from None
    return correlation_id, cls.decode(buffer, version, position)
