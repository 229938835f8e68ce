"""Times and durations as people write them."""

import re
from datetime import datetime, timedelta

import typer

_SHORT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.IGNORECASE)
_ISO = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def milliseconds(text: str, option: str, *, or_else: str = "") -> int:
    """A local time without zone, any ISO 8601 time with one, or @MILLISECONDS since 1970.

    Before 1970 there are no records: such a time means the first one, as at the text listener.
    """
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        return max(int(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is {or_else}no time such as 2026-01-31T12:00", param_hint=option
        ) from None


def duration_ms(text: str, option: str) -> int:
    """`90m`, `1d12h`, `30s`, or ISO 8601 as `PT1H30M`."""
    iso, short = _ISO.fullmatch(text), _SHORT.fullmatch(text)
    weeks = "0"
    if iso is not None and any(iso.groups()):
        weeks, *rest = (each or "0" for each in iso.groups())
    elif short is not None and any(short.groups()):
        rest = [each or "0" for each in short.groups()]
    else:
        raise typer.BadParameter(
            f"{text!r} is no duration such as 90m, 1d12h or PT1H30M", param_hint=option
        )
    days, hours, minutes = (int(each) for each in rest[:3])
    try:
        span = timedelta(
            weeks=int(weeks), days=days, hours=hours, minutes=minutes, seconds=float(rest[3])
        )
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long", param_hint=option) from None
    return int(span.total_seconds() * 1000)
