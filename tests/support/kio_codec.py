"""kio as the other side: its codec, its schemas, and its values put next to ours."""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
from enum import Enum
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headrace.protocol.fields import NULL_UUID, Field
from headrace.protocol.message import Struct

_MILLISECOND = datetime.timedelta(milliseconds=1)


def schema_of(api_key: int, version: int, direction: str) -> Any:
    """kio's class for one message-version; `direction` is request or response."""
    load: Any = load_request_schema if direction == "request" else load_response_schema
    return load(api_key, version)


def read(schema: Any, data: bytes) -> Any:
    """kio's object for the bytes, all of which it must use."""
    entity, used = entity_reader(schema)(data, 0)
    assert used == len(data), f"kio leaves {len(data) - used} bytes over"
    return entity


def write(schema: Any, entity: Any) -> bytes:
    """kio's bytes for the object."""
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, entity)
    return buffer.getvalue()


def assert_same_shape(ours: type[Struct], schema: Any, version: int) -> None:
    """Both sides declare the same fields in the same order, with the same tags and nulls."""
    declared = [
        (name, field) for name, field in ours.fields_declared.items() if field.is_in(version)
    ]
    theirs = dataclasses.fields(schema)
    hints = typing.get_type_hints(schema)
    assert [_plain(name) for name, _ in declared] == [_plain(other.name) for other in theirs]
    for (name, field), other in zip(declared, theirs, strict=True):
        where = f"{ours.__name__}.{name} v{version}"
        assert field.tag == other.metadata.get("tag"), where
        hint, nullable = _without_none(hints[other.name])
        if field.kind == "array":
            hint = typing.get_args(hint)[0]
        item: Field = field.item if field.kind == "array" else field
        # kio shows the zero UUID as None, so its hint says nothing about null on the wire.
        if field.kind != "uuid" and not _is_time(other):
            assert field.is_nullable_in(version) == nullable, where
        if item.kind == "struct":
            assert_same_shape(item.item, _without_none(hint)[0], version)


def assert_same_values(ours: Struct, theirs: Any, version: int) -> None:
    """Field by field, our object says the same as kio's."""
    declared = [name for name, field in ours.fields_declared.items() if field.is_in(version)]
    for name, other in zip(declared, dataclasses.fields(theirs), strict=True):
        _assert_same_value(getattr(ours, name), getattr(theirs, other.name), version, name)


def _assert_same_value(mine: Any, other: Any, version: int, name: str) -> None:
    if isinstance(mine, Struct):
        assert_same_values(mine, other, version)
    elif isinstance(mine, list):
        assert len(mine) == len(other), name
        for one, another in zip(mine, other, strict=True):
            _assert_same_value(one, another, version, name)
    else:
        assert _plain_value(mine) == _plain_value(other), name


def _plain_value(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, UUID):
        return None if value == NULL_UUID else value
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
        return (value - epoch) // _MILLISECOND
    return value.value if isinstance(value, Enum) else value


def _plain(name: str) -> str:
    """kio drops the unit from the names of what it turns into durations and dates."""
    return name.removesuffix("_ms").removesuffix("_timestamp")


def _is_time(field: Any) -> bool:
    return "time" in str(field.metadata.get("kafka_type", ""))


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        arguments = [one for one in typing.get_args(hint) if one is not type(None)]
        return arguments[0], len(arguments) < len(typing.get_args(hint))
    return hint, False
