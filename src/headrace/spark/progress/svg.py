"""Panels of lines over a common time, as one SVG that needs nothing else.

Colours are variables of the style sheet, so that the picture follows a light or a dark surface.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from headrace.spark.progress.axes import amount_ticks, time_ticks
from headrace.spark.progress.figures import clock
from headrace.spark.progress.series import BINS, Line, Span, nearby

WIDTH: Final = 960
LEFT: Final = 76
RIGHT: Final = 20
PLOT_HEIGHT: Final = 150
HEADING: Final = 46
FOOT: Final = 30
COLOURS: Final = 6
# A pipeline that runs once an hour has no restarts worth a mark.
RESTARTS_MAX: Final = 12
_DASHES: Final = ("", "6 3", "2 3")

STYLE: Final = """
:root { --surface: #ffffff; --text: #1c2330; --muted: #5f6b7a; --grid: #e4e8ee; --edge: #b6bec9;
  --c0: #1f6fd6; --c1: #c8501a; --c2: #0e8468; --c3: #9440a0; --c4: #8a6a00; --c5: #c2304f; }
@media (prefers-color-scheme: dark) {
  :root { --surface: #14181f; --text: #e8ecf2; --muted: #9aa6b5; --grid: #2a313c; --edge: #4a5462;
    --c0: #6aa8ff; --c1: #ff9a5c; --c2: #4fd1ab; --c3: #d992e4; --c4: #e3bd4a; --c5: #ff8097; } }
.chart { background: var(--surface); font-family: system-ui, -apple-system, "Segoe UI", Roboto,
  "DejaVu Sans", sans-serif; font-size: 12px; }
.chart text { fill: var(--muted); font-variant-numeric: tabular-nums; }
.chart .title { fill: var(--text); font-size: 14px; font-weight: 600; }
.chart .name { fill: var(--text); }
.chart .grid { stroke: var(--grid); stroke-width: 1; }
.chart .edge { stroke: var(--edge); stroke-width: 1; }
.chart .restart { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 3 3; }
.chart .line { fill: none; stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round; }
.chart .unseen { stroke-width: 1.25; stroke-dasharray: 1 4; stroke-linecap: round; }
.chart .area { stroke: none; fill-opacity: 0.12; }
.chart .hover { fill: transparent; }
.chart .hover:hover { fill: var(--text); fill-opacity: 0.08; }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: what it shows, in which unit, and how its numbers are written."""

    title: str
    unit: str
    lines: Sequence[Line]
    on_axis: Callable[[float], str]
    in_words: Callable[[float], str]


def draw(panels: Sequence[Panel], span: Span, restarts: Sequence[float], label: str) -> str:
    """All panels below each other."""
    each_height = HEADING + PLOT_HEIGHT + FOOT
    height = each_height * len(panels) + 6
    parts = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="var(--surface)"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0 {number * each_height})">')
        parts += _panel(panel, span, restarts, with_words=number == 0)
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts)


class _Plot:
    """Where times and amounts lie in a panel."""

    def __init__(self, span: Span, ticks: Sequence[float]) -> None:
        self._span = span
        self._top = ticks[-1]

    def x(self, at: float) -> float:
        share = (at - self._span.begin) / (self._span.end - self._span.begin)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEADING + PLOT_HEIGHT * (1 - value / self._top), 1)


def _panel(panel: Panel, span: Span, restarts: Sequence[float], *, with_words: bool) -> list[str]:
    ticks = amount_ticks(max((line.top for line in panel.lines), default=0))
    plot = _Plot(span, ticks)
    right, bottom = WIDTH - RIGHT, HEADING + PLOT_HEIGHT
    parts = [
        f'<text class="title" x="{LEFT}" y="18">{escape(panel.title)}'
        f'<tspan dx="8" font-weight="400" font-size="12" fill="var(--muted)">{escape(panel.unit)}'
        "</tspan></text>"
    ]
    for tick in ticks:
        y = plot.y(tick)
        kind = "edge" if tick == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        text = escape(panel.on_axis(tick))
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{bottom + 18}" text-anchor="end">UTC</text>')
    for at, text in time_ticks(span.begin, span.end):
        x = plot.x(at)
        parts.append(f'<line class="edge" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{text}</text>')
    parts += _restarts(plot, restarts, with_words=with_words)
    parts += _lines(panel.lines, plot)
    parts += _legend(panel.lines)
    parts += _hovers(panel, span, plot)
    return parts


def _restarts(plot: _Plot, restarts: Sequence[float], *, with_words: bool) -> list[str]:
    parts: list[str] = []
    worded = float("-inf")
    for at in restarts if len(restarts) <= RESTARTS_MAX else ():
        x = plot.x(at)
        parts.append(
            f'<line class="restart" x1="{x}" x2="{x}" y1="{HEADING}" y2="{HEADING + PLOT_HEIGHT}"/>'
        )
        if with_words and x - worded > 70:  # queries of one pipeline begin again together
            worded = x
            parts.append(f'<text x="{x + 4}" y="{HEADING + 10}">restarted</text>')
    return parts


def _lines(lines: Sequence[Line], plot: _Plot) -> list[str]:
    parts: list[str] = []
    base = plot.y(0)
    for line in lines:
        colour, dash = _look(line.look)
        for (begin, low), (end, high) in line.unseen:
            parts.append(
                f'<line class="unseen" stroke="{colour}" x1="{plot.x(begin)}" y1="{plot.y(low)}" '
                f'x2="{plot.x(end)}" y2="{plot.y(high)}"/>'
            )
        for piece in filter(None, line.pieces):
            places = [f"{plot.x(at)},{plot.y(value)}" for at, value in piece]
            if len(piece) == 1:
                x, y = places[0].split(",")
                parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
                continue
            if len(lines) == 1:
                first, last = plot.x(piece[0][0]), plot.x(piece[-1][0])
                around = f"M{first},{base} L{' '.join(places)} L{last},{base} Z"
                parts.append(f'<path class="area" fill="{colour}" d="{around}"/>')
            parts.append(
                f'<path class="line" stroke="{colour}" stroke-dasharray="{dash or "none"}" '
                f'd="M{" ".join(places)}"/>'
            )
    return parts


def _legend(lines: Sequence[Line]) -> list[str]:
    """Names below the title, with the look of their lines."""
    parts: list[str] = []
    x = float(LEFT)
    room = (WIDTH - LEFT - RIGHT) / max(len(lines), 1)
    for line in lines:
        colour, dash = _look(line.look)
        letters = max(6, int((room - 34) / 6.4))
        # Names of one pipeline begin alike.
        name = line.name if len(line.name) <= letters else "…" + line.name[1 - letters :]
        parts.append(
            f'<path class="line" stroke="{colour}" stroke-dasharray="{dash or "none"}" '
            f'd="M{x},33 h16"/><text class="name" x="{x + 22}" y="37">{escape(name)}'
            f"<title>{escape(line.name)}</title></text>"
        )
        x += min(room, 40 + 6.8 * len(name))
    return parts


def _look(number: int) -> tuple[str, str]:
    """Colour and dashes of the n-th line."""
    return f"var(--c{number % COLOURS})", _DASHES[number // COLOURS % len(_DASHES)]


def _hovers(panel: Panel, span: Span, plot: _Plot) -> list[str]:
    """Stretches that tell their numbers to who points at them."""
    parts = []
    for number in range(BINS):
        begin, end = span.bounds(number)
        told = [
            f"{line.name}: {panel.in_words(value)}"
            for line in panel.lines
            if (value := nearby(line, begin, end)) is not None
        ]
        if told:
            text = escape("\n".join([f"{clock(begin)} UTC", *told]))
            x, width = plot.x(begin), round(plot.x(end) - plot.x(begin), 1)
            parts.append(
                f'<rect class="hover" x="{x}" y="{HEADING}" width="{width}" '
                f'height="{PLOT_HEIGHT}"><title>{text}</title></rect>'
            )
    return parts
