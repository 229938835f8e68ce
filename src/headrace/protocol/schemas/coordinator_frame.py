"""The frame around keys and values of `__consumer_offsets` and `__transaction_state`.

A key starts with two bytes that say what kind of record it is, a value with two bytes that say
in which version it is written. A null value deletes. The consumer protocol's subscriptions and
assignments start with their version in the same way.
"""

from struct import Struct as Format
from sys import maxsize
from typing import Final, TypeVar

from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer
from headrace.protocol.message import Message
from headrace.protocol.schemas import consumer_groups, group_offsets, transaction_log

_INT16: Final = Format(">h")

M = TypeVar("M", bound=Message)


def _keys_and_values(*modules: object) -> dict[int, tuple[type[Message], type[Message]]]:
    keys: dict[int, type[Message]] = {}
    values: dict[int, type[Message]] = {}
    for module in modules:
        for name, cls in vars(module).items():
            if not isinstance(cls, type) or not issubclass(cls, Message) or cls is Message:
                continue
            if cls.schema.record_type is not None:
                side = keys if name.endswith("Key") else values
                side[cls.schema.record_type] = cls
    return {record_type: (keys[record_type], values[record_type]) for record_type in keys}


GROUP_RECORDS: Final = _keys_and_values(group_offsets, consumer_groups)
"""Key and value classes of `__consumer_offsets`, by record type."""

TRANSACTION_RECORDS: Final = _keys_and_values(transaction_log)
"""Key and value classes of `__transaction_state`, by record type."""


def encode_key(key: Message) -> bytes:
    """The bytes of a record key, its type in front."""
    record_type = key.schema.record_type
    assert record_type is not None, f"{type(key).__name__} is no coordinator key"
    return _INT16.pack(record_type) + key.encode(0)


def encode_versioned(value: Message, version: int) -> bytes:
    """The bytes of a value, a subscription or an assignment, its version in front."""
    return _INT16.pack(version) + value.encode(version)


def decode_versioned(cls: type[M], data: Buffer, items_max: int = maxsize) -> tuple[M, int]:
    """Read what `encode_versioned` wrote; also says which version it was."""
    version = _leading_int16(data)
    return cls.decode(data, version, 2, items_max), version


def decode_record(
    classes: dict[int, tuple[type[Message], type[Message]]], key: Buffer, value: Buffer | None
) -> tuple[Message, Message | None]:
    """Key and value of one stored record; the value is None where the record deletes."""
    record_type = _leading_int16(key)
    pair = classes.get(record_type)
    if pair is None:
        raise MalformedMessage(f"coordinator record type {record_type} is not known")
    key_class, value_class = pair
    decoded = key_class.decode(key, 0, 2)
    return decoded, None if value is None else decode_versioned(value_class, value)[0]


def _leading_int16(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedMessage("record ends inside its first two bytes")
    number: int = _INT16.unpack_from(data, 0)[0]
    return number
