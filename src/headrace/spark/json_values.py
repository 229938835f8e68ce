"""JSON documents to Arrow columns by msgspec: decoding checks types, so bad ones say why."""

import datetime
import decimal
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headrace.core.errors import InvalidConfig
from headrace.spark.bad_values import BadValues, one_by_one

# Both ends of the years 1 to 9999: beyond them Spark's SQL and Python have no times.
_TIME_US_MIN: Final = -62_135_596_800_000_000
_TIME_US_MAX: Final = 253_402_300_799_999_999
# The first number that rounds to no finite number of 32 bits.
_FLOAT_END: Final = float(2**128 - 2**103)
_INT_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def json_reader(kind: pa.DataType) -> Callable[[pa.Array], tuple[pa.Array, BadValues]]:
    """What turns documents into a column of this type, and tells which were bad and why."""
    decode = msgspec.json.Decoder(_python_type(kind, "Value")).decode

    def read(raw: pa.Array) -> tuple[pa.Array, BadValues]:
        values = raw.to_pylist()
        try:
            if raw.null_count:
                found = [None if value is None else decode(value) for value in values]
            else:
                found = list(map(decode, values))
            return _column(found, kind), {}
        except MemoryError:
            raise
        except Exception:  # at least one is bad, in whatever way: find out which
            return one_by_one(values, decode, lambda found: _column(found, kind))

    return read


def _python_type(kind: pa.DataType, name: str) -> Any:
    """The msgspec type of an Arrow type."""
    if kind in _INT_BITS:
        top = 2 ** (_INT_BITS[kind] - 1)
        return Annotated[int, msgspec.Meta(ge=-top, le=top - 1)]
    if kinds.is_float32(kind):
        return Annotated[float, msgspec.Meta(gt=-_FLOAT_END, lt=_FLOAT_END)]
    if kinds.is_floating(kind):
        return float
    if kinds.is_boolean(kind):
        return bool
    if kinds.is_string(kind):
        return str
    if kinds.is_binary(kind):
        return bytes
    if kinds.is_timestamp(kind):
        if kind.tz is None:  # a zone would be applied and dropped: another time than was written
            return Annotated[datetime.datetime, msgspec.Meta(tz=False)]
        return datetime.datetime
    if kinds.is_date(kind):
        return datetime.date
    if kinds.is_decimal(kind):
        return decimal.Decimal
    if kinds.is_list(kind):
        return list[_python_type(kind.value_type, name) | None]  # type: ignore[misc]  # built at run time
    if kinds.is_map(kind) and kinds.is_string(kind.key_type):
        return dict[str, _python_type(kind.item_type, name) | None]  # type: ignore[misc]  # built at run time
    if kinds.is_struct(kind):
        return _struct(kind, name)
    raise InvalidConfig(f"valueSchema: a column of type {kind} cannot be read from JSON")


def _struct(kind: pa.DataType, name: str) -> Any:
    fields: list[Any] = []
    for number, field in enumerate(kind):
        wanted = _python_type(field.type, f"{name}_{number}")
        if field.nullable:
            fields.append((f"f{number}", wanted | None, None))
        else:
            fields.append((f"f{number}", wanted))
    renamed = {f"f{number}": field.name for number, field in enumerate(kind)}
    return msgspec.defstruct(name, fields, rename=renamed, kw_only=True, gc=False)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Decoded values as an Arrow array; nested ones part by part."""
    if kinds.is_struct(kind):
        return _struct_column(values, kind)
    if kinds.is_list(kind) and _has_parts(kind.value_type):
        edges, mask = _edges(values)
        inner = [each for value in values if value is not None for each in value]
        return pa.ListArray.from_arrays(edges, _column(inner, kind.value_type), kind, mask=mask)
    if kinds.is_map(kind):
        return _map_column(values, kind)
    found = pa.array(values, kind)
    if kinds.is_timestamp(kind):
        _refuse_impossible_times(found)
    return found


def _has_parts(kind: pa.DataType) -> bool:
    """Whether Arrow alone cannot build, or not judge, a list of these."""
    return bool(kinds.is_nested(kind) or kinds.is_timestamp(kind))


def _refuse_impossible_times(times: pa.Array) -> None:
    """A zone can move a time out of the years that there are."""
    ends = pc.min_max(times.view(pa.int64()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is not None and (first < _TIME_US_MIN or last > _TIME_US_MAX):
        raise ValueError("in UTC, a time is outside the years 1 to 9999")


def _struct_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    fields = list(kind)
    missing = [value is None for value in values] if None in values else None
    parts = []
    for number, field in enumerate(fields):
        name = f"f{number}"
        if missing is None:
            inner = list(map(attrgetter(name), values))
        else:
            inner = [None if value is None else getattr(value, name) for value in values]
        parts.append(_column(inner, field.type))
    mask = None if missing is None else pa.array(missing)
    if not fields:
        return pa.array([None if value is None else {} for value in values], kind)
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


def _map_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    edges, mask = _edges(values)
    keys = [key for value in values if value is not None for key in value]
    items = [item for value in values if value is not None for item in value.values()]
    return pa.MapArray.from_arrays(
        edges, pa.array(keys, kind.key_type), _column(items, kind.item_type), kind, mask=mask
    )


def _edges(values: list[Any]) -> tuple[pa.Array, pa.Array | None]:
    edges = [0]
    for value in values:
        edges.append(edges[-1] + (0 if value is None else len(value)))
    mask = pa.array([value is None for value in values]) if None in values else None
    return pa.array(edges, pa.int32()), mask
