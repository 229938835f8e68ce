"""The words of a line: bare, or in double quotes with backslash escapes.

    PUBLISH orders KEY "two words" HEADER note="a \\"b\\"" hello

Pure; what it cannot read raises `BadLine`, whose text says how to write it.
"""

import re
from typing import Final

from headrace.core.errors import ApiError, ErrorCode

_BARE: Final = re.compile(rb'[^ "]+')
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b'"': b'"', b"\\": b"\\"}
_NEEDS_QUOTES: Final = re.compile(rb'[\x00-\x20"\\\x7f-\xff]')
_QUOTABLE: Final = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_ESCAPE_OF: Final = {value[0]: b"\\" + name for name, value in _ESCAPES.items()}


class BadLine(ApiError):
    """A line that cannot be read; the text says how to write it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class Tokenizer:
    """Takes a line apart, word by word."""

    __slots__ = ("_at", "_line")

    def __init__(self, line: bytes) -> None:
        self._line = line
        self._at = 0

    def next(self) -> bytes | None:
        """The next word; None at the end of the line. A word may have quoted parts."""
        line = self._line
        at = self._at
        while line[at : at + 1] == b" ":
            at += 1
        if at == len(line):
            self._at = at
            return None
        parts: list[bytes] = []
        while at < len(line) and line[at : at + 1] != b" ":
            match = _BARE.match(line, at)
            if match is not None:
                parts.append(match[0])
            else:
                match = _QUOTED.match(line, at)
                if match is None:
                    raise BadLine('a word in quotes has no closing "; write "..." around it')
                parts.append(_ESCAPE.sub(_unescape, match[1]))
            at = match.end()
        self._at = at
        return b"".join(parts)

    def peek(self) -> bytes:
        """The bare word that comes next, without taking it; empty if it is none."""
        match = _BARE.match(self._line, self._start())
        return b"" if match is None else match[0]

    def rest(self) -> bytes | None:
        """What follows one space, as it stands; None when there is nothing."""
        at = self._at
        if at >= len(self._line):
            return None
        return self._line[at + 1 :]

    def _start(self) -> int:
        at = self._at
        while self._line[at : at + 1] == b" ":
            at += 1
        return at


def _unescape(match: "re.Match[bytes]") -> bytes:
    name = match[1]
    if name[:1] == b"x" and len(name) == 3:
        return bytes([int(name[1:], 16)])
    found = _ESCAPES.get(name)
    if found is None:
        raise BadLine(r"in quotes, a backslash goes before \ \" n r t or xNN")
    return found


def quote(word: bytes) -> bytes:
    """A word as `Words` reads it back: bare where it can be, UTF-8 left readable."""
    if word and _NEEDS_QUOTES.search(word) is None:
        return word
    try:
        text = word.decode()
    except UnicodeDecodeError:
        return b'"' + _QUOTABLE.sub(_escape, word) + b'"'
    if word and b" " not in word and text.isprintable() and not {'"', "\\"} & set(text):
        return word
    return b'"' + b"".join(map(_escape_char, text)) + b'"'


def _escape(match: "re.Match[bytes]") -> bytes:
    return _ESCAPE_OF.get(match[0][0]) or b"\\x%02x" % match[0][0]


def _escape_char(char: str) -> bytes:
    if char in '"\\':
        return b"\\" + char.encode()
    if char.isprintable():
        return char.encode()
    return b"".join(_ESCAPE_OF.get(byte) or b"\\x%02x" % byte for byte in char.encode())
