"""Random messages made from their own declarations, the same for the same seed.

Every kind of value turns up: zeroes, extremes, nulls where they are legal, text beyond ASCII,
lengths that need a second varint byte, tags set and left out. `polite` keeps to what a library
can hold that models times as dates and error codes as an enum; `likely_defaults` gives tags only
values that may well be their defaults, to see that both sides leave out the same ones.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar
from uuid import UUID

from headrace.core.errors import ErrorCode
from headrace.protocol.fields import FIXED_FORMATS, Field
from headrace.protocol.message import Message

M = TypeVar("M", bound=Message)

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16}
_ALPHABET = "abcXYZ019._- äß€漢🜁\0"
# Values that some schema gives to a tag when it is left out.
_LIKELY_DEFAULTS: dict[str, list[Any]] = {
    "int8": [0, -1],
    "int16": [0, -1],
    "int32": [0, -1, -2],
    "int64": [0, -1, (1 << 63) - 1],
    "boolean": [False, True],
    "uuid": [UUID(int=0), UUID(int=1)],
}
_TIME_ENDINGS = ("_ms", "timestamp", "_time")


class ValueMaker:
    """Makes messages of any class in any of its versions."""

    def __init__(self, random: Random, *, polite: bool, likely_defaults: bool = False) -> None:
        self._random = random
        self._polite = polite
        self._likely_defaults = likely_defaults

    def message(self, cls: type[M], version: int) -> M:
        """One message; fields the version lacks keep their defaults."""
        made: M = self._struct(cls, version)
        return made

    def _struct(self, cls: Any, version: int) -> Any:
        values = {}
        for name, field in cls.fields_declared.items():
            absent = field.tag is not None and self._random.random() < 0.4
            if not field.is_in(version) or absent:
                continue
            if field.tag is not None and self._likely_defaults and field.kind in _LIKELY_DEFAULTS:
                values[name] = self._random.choice(_LIKELY_DEFAULTS[field.kind])
            else:
                values[name] = self._value(name, field, version)
        return cls(**values)

    def _value(self, name: str, field: Field, version: int) -> Any:
        if field.is_nullable_in(version) and self._random.random() < 0.25:
            return None
        if field.kind == "array":
            return [self._value(name, field.item, version) for _ in range(self._count(field.item))]
        if field.kind == "struct":
            return self._struct(field.item, version)
        if field.kind in FIXED_FORMATS:
            return self._fixed(name, field.kind)
        if field.kind == "string":
            return self._text()
        return self._random.randbytes(self._length())

    def _fixed(self, name: str, kind: str) -> Any:
        random = self._random
        if kind == "boolean":
            return random.random() < 0.5
        if kind == "uuid":
            return UUID(int=0 if random.random() < 0.1 else random.getrandbits(128))
        if kind == "float64":
            return random.choice([0.0, -1.5, 1e300, random.uniform(-1e9, 1e9)])
        if self._polite and name.endswith("error_code"):
            return int(random.choice(list(ErrorCode)))
        if self._polite and name.endswith(_TIME_ENDINGS):
            return random.randrange(0, 1 << (min(_BITS[kind], 42) - 1))
        return self._integer(_BITS[kind], signed=not kind.startswith("u"))

    def _integer(self, bits: int, *, signed: bool) -> int:
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        picked = self._random.choice([0, 1, -1, low, high, self._random.randint(low, high)])
        return max(low, picked)

    def _text(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=self._length()))

    def _length(self) -> int:
        return self._random.choice([0, 1, 3, 8, 20, 126, 127, 128, 300])

    def _count(self, item: Field) -> int:
        if item.kind in FIXED_FORMATS and self._random.random() < 0.1:
            return 130
        return self._random.choice([0, 1, 1, 2, 3])


def smallest(cls: type[M], version: int, repeated: str = "", times: int = 0) -> M:
    """The message with the fewest bytes, but with one list field holding `times` such items."""
    made: M = _smallest_struct(cls, version)
    if repeated:
        item = _smallest_value(cls.fields_declared[repeated].item, version)
        setattr(made, repeated, [item] * times)
    return made


def _smallest_struct(cls: Any, version: int) -> Any:
    values = {
        name: _smallest_value(field, version)
        for name, field in cls.fields_declared.items()
        if field.is_in(version) and field.tag is None
    }
    return cls(**values)


def _smallest_value(field: Field, version: int) -> Any:
    if field.kind == "array":
        return []
    if field.kind == "struct":
        nullable = field.is_nullable_in(version)
        return None if nullable else _smallest_struct(field.item, version)
    zeroes = {"string": "", "uuid": UUID(int=0), "boolean": False, "float64": 0.0}
    return zeroes.get(field.kind, 0 if field.kind in FIXED_FORMATS else b"")
