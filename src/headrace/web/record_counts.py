"""How many records a body holds, found out before they are made into objects."""

import re
from collections.abc import Iterator
from typing import Final

# So much is looked at in one piece: a few milliseconds, whatever the bytes are.
PIECE_BYTES: Final = 8 * 1024
_MARKS: Final = re.compile(rb'[{}\[\]"\\]')
_OPENING: Final = frozenset(b"{[")
_RECORD_DEPTH: Final = 2  # in the object that is the body, in a list
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_BRACE: Final = ord("{")


def records_at_most(body: bytes) -> int:
    """An upper bound that costs nothing: every record begins with a brace."""
    return body.count(b"{")


def count_records(body: bytes) -> Iterator[int]:
    """The objects in lists of the outermost object, counted piece by piece.

    A decoder makes no more records than that, however broken the body is.
    """
    count = depth = 0
    is_text = False
    escaped = -1
    for start in range(0, len(body), PIECE_BYTES):
        for mark in _MARKS.finditer(body, start, start + PIECE_BYTES):
            at = mark.start()
            sign = body[at]
            if is_text:
                if at == escaped:
                    continue
                if sign == _BACKSLASH:
                    escaped = at + 1
                elif sign == _QUOTE:
                    is_text = False
            elif sign == _QUOTE:
                is_text = True
            elif sign in _OPENING:
                if depth == _RECORD_DEPTH and sign == _BRACE:
                    count += 1
                depth += 1
            elif sign != _BACKSLASH:
                depth -= 1
        yield count
