"""Columns as SQL writes them, looked at without Spark.

Spark reads them too, but as part of all columns of a record, and then blames a text that nobody
wrote. Only what is surely wrong is told here.
"""

import difflib
import re
from typing import Final, NoReturn

from headrace.core.errors import InvalidConfig

_TOKEN: Final = re.compile(
    r"""`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|[^\s<>(),:`'"]+|[`'"]"""
)
_MARKS: Final = frozenset("<>(),:")
_TYPES: Final = (
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float",
    "real", "double", "decimal", "dec", "numeric", "string", "char", "character", "varchar",
    "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "void",
    "variant", "geography", "geometry", "array", "map", "struct",
)  # fmt: skip


def require_columns(text: str, option: str) -> None:
    """Raise InvalidConfig, by the option's name, unless the text is columns with their types."""
    _Columns(text, option).read("")


class _Columns:
    """Goes through the words of a text once."""

    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        self._words = _TOKEN.findall(text)
        self._at = 0

    def read(self, closing: str) -> None:
        """Columns up to a mark, or (empty) up to the end."""
        while True:
            name = self._take()
            if not name or name in _MARKS:
                self._wrong("a column is missing" if name in ("", ",", closing) else f"odd {name}")
            if self._next() == ":":
                self._take()
            self._type(name)
            mark = self._rest()
            if mark == closing:
                return
            if mark != ",":
                self._wrong(f"{closing!r} is missing" if closing else f"{mark!r} is too many")

    def _type(self, column: str) -> None:
        word = self._take()
        if not word or word in _MARKS:
            self._wrong(f"{column!r} has no type")
        kind = word.lower()
        if kind not in _TYPES:
            near = difflib.get_close_matches(kind, _TYPES, 1)
            self._wrong(
                f"there is no type {word!r}" + (f": did you mean {near[0]}?" if near else "")
            )
        if kind in ("array", "map", "struct"):
            self._within(kind, column)

    def _within(self, kind: str, column: str) -> None:
        """What stands between < and >."""
        if self._take() != "<":
            self._wrong(f"{kind} needs what it holds, as array<int> or struct<a: int> has it")
        if kind == "struct":
            if self._next() == ">":
                self._take()
                return
            self.read(">")
            return
        for mark in (",", ">") if kind == "map" else (">",):
            self._type(column)
            if self._rest() != mark:
                self._wrong(f"{mark!r} is missing in {kind}")

    def _rest(self) -> str:
        """Pass over what may follow a type, NOT NULL say; the mark that ends it."""
        while True:
            word = self._take()
            if word == "(":
                while word not in ("", ")"):
                    word = self._take()
            elif not word or word in _MARKS:
                return word

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self) -> str:
        word = self._next()
        self._at += 1
        return word

    def _wrong(self, what: str) -> NoReturn:
        raise InvalidConfig(
            f"{self._option}={self._text!r}: {what}; columns are such as 'user string, item int'"
        )
