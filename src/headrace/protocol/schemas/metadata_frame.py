"""The frame around a metadata record: three varints that say what follows.

A value in `__cluster_metadata` or in a snapshot is frame version, record type, record version,
and then the record itself. Frame version 1 is the only one there is.
"""

from typing import Final

from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer
from headrace.protocol.message import Message
from headrace.protocol.schemas import (
    metadata_cluster,
    metadata_nodes,
    metadata_security,
    metadata_topics,
)
from headrace.protocol.wire import decode_varint, encode_varint

FRAME_VERSION: Final = 1

RECORD_CLASSES: Final[dict[int, type[Message]]] = {
    cls.schema.record_type: cls
    for module in (metadata_cluster, metadata_nodes, metadata_security, metadata_topics)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message
    if cls.schema.record_type is not None
}
"""Every kind of metadata record, by its type number."""


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The framed bytes of a metadata record in one of its versions."""
    record_type = record.schema.record_type
    assert record_type is not None, f"{type(record).__name__} is no metadata record"
    return b"".join(
        (
            encode_varint(FRAME_VERSION),
            encode_varint(record_type),
            encode_varint(version),
            record.encode(version),
        )
    )


def decode_metadata_record(data: Buffer) -> tuple[Message, int]:
    """The record in a frame, and the version it was written in."""
    try:
        frame_version, position = decode_varint(data, 0)
        record_type, position = decode_varint(data, position)
        version, position = decode_varint(data, position)
    except IndexError:
        raise MalformedMessage("metadata record ends inside its frame") from None
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata frame version {frame_version} is not known")
    cls = RECORD_CLASSES.get(record_type)
    if cls is None:
        raise MalformedMessage(f"metadata record type {record_type} is not known")
    return cls.decode(data, version, position), version
