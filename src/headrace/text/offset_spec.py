"""Places to read from, as people write them.

BEGINNING   END   42   2026-01-31T12:00:00Z   @1769860800000   -15m   GROUP billing
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec, at_time
from headrace.text.tokenizer import BadLine, Tokenizer

_AGO: Final = re.compile(r"-(\d{1,9})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OFFSET: Final = re.compile(r"\d{1,18}")
SYNTAX: Final = (
    "BEGINNING, END, an offset, a time (2026-01-31T12:00:00Z, @<milliseconds> or -15m)"
    " or GROUP <group>"
)


class CommittedByGroup(NamedTuple):
    """Where a group has committed."""

    group: str


TextOffsetSpec = int | OffsetSpec | CommittedByGroup


def parse_offset_spec(tokens: Tokenizer, now_ms: int) -> TextOffsetSpec:
    """The place that the next words name."""
    word = tokens.next()
    if word is None:
        raise BadLine(f"say where: {SYNTAX}")
    text = word.decode(errors="replace")
    match text.upper():
        case "BEGINNING" | "EARLIEST":
            return EARLIEST
        case "END" | "LATEST":
            return LATEST
        case "GROUP":
            group = tokens.next()
            if not group:
                raise BadLine("write GROUP <group>")
            return CommittedByGroup(group.decode(errors="replace"))
    if _OFFSET.fullmatch(text):
        return int(text)
    return at_time(_time(text, now_ms))


def _time(text: str, now_ms: int) -> int:
    if text[:1] == "@" and _OFFSET.fullmatch(text[1:]):
        return int(text[1:])
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(now_ms - int(ago[1]) * _UNIT_MS[ago[2]], 0)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadLine(f"{text!r} is no place to read from; write {SYNTAX}") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(int(when.timestamp() * 1000), 0)
