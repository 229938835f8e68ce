"""Round numbers for axes: of amounts, and of time."""

import math
from datetime import UTC, datetime
from typing import Final

_TIME_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400),
)
_DAY: Final = 86_400


def amount_ticks(top: float, count: int = 4) -> list[float]:
    """From zero in about `count` round steps to a round number not below `top`."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= raw * (1 - 1e-9))
    steps = math.ceil(top / step - 1e-9)
    return [step * number for number in range(steps + 1)]


def time_ticks(begin: float, end: float, count: int = 8) -> list[tuple[float, str]]:
    """Round times within a span, and what to write below them."""
    raw = max(end - begin, 1) / count
    step = next((each for each in _TIME_STEPS if each >= raw), 0)
    if not step:
        step = _DAY * math.ceil(raw / _DAY)
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    at = math.ceil(begin / step) * step
    ticks = []
    while at <= end:
        # Midnight is told by the day that begins.
        text = datetime.fromtimestamp(at, UTC).strftime(form if at % _DAY else "%d %b")
        ticks.append((float(at), text))
        at += step
    return ticks
