"""Numbers as people read them: short, with a unit, and as precise as is of use."""

from datetime import UTC, datetime

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_COUNTS = ("", "k", "M", "G", "T")


def whole(number: int | None) -> str:
    """All digits, in groups; a dash for what is not known."""
    return "-" if number is None else f"{number:,}"


def rate(per_second: float) -> str:
    """So many per second; a decimal while there are few."""
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def duration(ms: float) -> str:
    """`340 ms`, `2.1 s`, `3 min 20 s`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(number: float) -> str:
    """Bytes in the unit that fits."""
    for unit in _BYTES[:-1]:
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} {_BYTES[-1]}"


def short(number: float) -> str:
    """For axes: `0`, `250`, `1.5 k`, `2 M`."""
    for letter in _COUNTS[:-1]:
        if abs(number) < 1000:
            return f"{number:.6g} {letter}".strip()
        number /= 1000
    return f"{number:.6g} {_COUNTS[-1]}"


def axis_duration(ms: float) -> str:
    """For axes: `0`, `250 ms`, `1.5 s`, `5 min`."""
    if ms < 1000:
        return f"{ms:.6g} ms" if ms else "0"
    return f"{ms / 1000:.6g} s" if ms < 600_000 else f"{ms / 60_000:.6g} min"


def clock(at: float) -> str:
    """Time of day, in UTC like everything here."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def moment(at: float) -> str:
    """Day and time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
