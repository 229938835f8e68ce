"""The words a message is declared with: one call per wire type.

    group_instance_id: str | None = string(since=3, nullable=True, default=None)

`since` and `until` are the first and last version that carry the field; `nullable` says from
which version on null is legal (True: always); `tag` makes it a tagged field. A field with a
`default` may be left out of the constructor, and gets that value when a version lacks it or a
tag is absent; one without must be given, and reads as its type's zero where a version lacks it.
"""

from typing import Any, Final
from uuid import UUID

UNSET: Final = object()
NULL_UUID: Final = UUID(int=0)

# What a field reads as when the version lacks it and the declaration names no default.
_ZEROES: Final[dict[str, Any]] = {
    "boolean": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "float64": 0.0,
    "uuid": NULL_UUID,
    "array": (),
    "struct": None,
}

# struct-module letters of the kinds whose size is known beforehand.
FIXED_FORMATS: Final[dict[str, str]] = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Field:
    """One declared field: its wire type and the versions it lives in."""

    __slots__ = ("default", "item", "kind", "nullable_since", "required", "since", "tag", "until")

    def __init__(
        self,
        kind: str,
        *,
        since: int = 0,
        until: int | None = None,
        tag: int | None = None,
        nullable: bool | int = False,
        default: Any = UNSET,
        item: Any = None,
    ) -> None:
        self.kind = kind
        self.since = since
        self.until = until
        self.tag = tag
        # False and True are ints too, so the identity decides, not the value.
        self.nullable_since: int | None = (
            None if nullable is False else 0 if nullable is True else nullable
        )
        self.required = default is UNSET
        self.default = _ZEROES.get(kind, 0) if default is UNSET else default
        self.item = item

    def is_in(self, version: int) -> bool:
        """Whether this version carries the field."""
        return self.since <= version and (self.until is None or version <= self.until)

    def is_nullable_in(self, version: int) -> bool:
        """Whether null is legal in this version."""
        return self.nullable_since is not None and version >= self.nullable_since


def boolean(**options: Any) -> Any:
    """One byte, zero or not."""
    return Field("boolean", **options)


def int8(**options: Any) -> Any:
    """Signed, one byte."""
    return Field("int8", **options)


def int16(**options: Any) -> Any:
    """Signed, two bytes; error codes are such."""
    return Field("int16", **options)


def uint16(**options: Any) -> Any:
    """Unsigned, two bytes; ports are such."""
    return Field("uint16", **options)


def int32(**options: Any) -> Any:
    """Signed, four bytes."""
    return Field("int32", **options)


def int64(**options: Any) -> Any:
    """Signed, eight bytes; offsets and times are such."""
    return Field("int64", **options)


def float64(**options: Any) -> Any:
    """IEEE double."""
    return Field("float64", **options)


def uuid(**options: Any) -> Any:
    """Sixteen bytes; all zero stands for "none"."""
    return Field("uuid", **options)


def string(**options: Any) -> Any:
    """UTF-8 text with its length before it."""
    return Field("string", **options)


def binary(**options: Any) -> Any:
    """Opaque bytes, copied out of the buffer on decode."""
    return Field("bytes", **options)


def batches(**options: Any) -> Any:
    """Record batches: a view into the buffer on decode, never copied by `encode_parts`."""
    return Field("records", **options)


def array(item: Any, **options: Any) -> Any:
    """A list of another wire type (`int32()`) or of a `Struct` class."""
    return Field("array", item=_item(item), **options)


def struct(item: Any, **options: Any) -> Any:
    """One nested `Struct`."""
    return Field("struct", item=item, **options)


def _item(item: Any) -> Field:
    return item if isinstance(item, Field) else Field("struct", item=item)
