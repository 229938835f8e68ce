"""Every decoder of the protocol room, behind one shape, for tests that feed it garbage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer
from headrace.protocol.api_keys import APIS, request_class, response_class
from headrace.protocol.frames import decode_request_header
from headrace.protocol.message import Message
from headrace.protocol.schemas.coordinator_frame import (
    GROUP_RECORDS,
    TRANSACTION_RECORDS,
    decode_record,
)
from headrace.protocol.schemas.metadata_frame import decode_metadata_record
from tests.support.codec_arbiter import stored_messages

Decode = Callable[[Buffer], object]


def message_versions() -> list[tuple[type[Message], int]]:
    """Every class with every version it has."""
    classes = [load(key) for key in APIS for load in (request_class, response_class)]
    return [
        (cls, version)
        for cls in [*classes, *stored_messages().values()]
        for version in range(cls.schema.lowest_version, cls.schema.highest_version + 1)
    ]


def decoders() -> list[tuple[str, Decode]]:
    """Every decoder with a name, frames included."""
    found: list[tuple[str, Decode]] = [
        ("request header", decode_request_header),
        ("metadata record", decode_metadata_record),
        ("group record key", lambda data: decode_record(GROUP_RECORDS, data, None)),
        ("transaction record key", lambda data: decode_record(TRANSACTION_RECORDS, data, None)),
    ]
    for cls, version in message_versions():
        decode: Decode = partial(_decode, cls, version)
        found.append((f"{cls.__name__} v{version}", decode))
    return found


def _decode(cls: type[Message], version: int, data: Buffer) -> Message:
    return cls.decode(data, version)


def outcome(decode: Decode, data: Buffer) -> object:
    """What was read, or None for a clean refusal; anything else escapes and fails the test."""
    try:
        return decode(data)
    except MalformedMessage:
        return None
