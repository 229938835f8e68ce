"""A page about the queries: throughput and lag over time, and a table of figures.

One file that needs nothing from elsewhere: an SVG, or a page around it.
"""

from collections.abc import Sequence
from html import escape
from statistics import median
from typing import Final

from headrace.spark.progress import figures
from headrace.spark.progress.late import LateRows, percent
from headrace.spark.progress.measures import Progress
from headrace.spark.progress.series import lag, measured, restarts, runs, span_of, throughput
from headrace.spark.progress.svg import STYLE, WIDTH, Panel, draw

FORMATS: Final = (".html", ".svg")
REFRESH_SECONDS: Final = 5

_STYLE: Final = f"""
body {{ margin: 0; background: var(--surface); color: var(--text); font: 14px/1.5 system-ui,
  -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
main {{ max-width: {WIDTH}px; margin: 0 auto; padding: 24px 16px 48px; }}
h1 {{ font-size: 22px; line-height: 1.25; margin: 0 0 4px; }}
p {{ color: var(--muted); margin: 0 0 20px; }}
svg {{ width: 100%; height: auto; display: block; }}
.wide {{ overflow-x: auto; margin: 0 0 28px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px;
  font-variant-numeric: tabular-nums; }}
th, td {{ text-align: right; padding: 6px 8px; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }}
th {{ color: var(--muted); font-weight: 500; font-size: 12px; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
"""


def render(batches: Sequence[Progress], kind: str, title: str, *, is_live: bool = False) -> str:
    """The report as text of a kind in FORMATS; a live page asks to be loaded again."""
    picture = _picture(batches, title) if batches else ""
    if kind == ".svg":
        return picture or '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
    return _page(batches, picture, title, is_live=is_live)


def _picture(batches: Sequence[Progress], title: str) -> str:
    span = span_of(batches)
    seconds = measured(batches, span, lambda each: float(each.batch_ms))
    panels = [
        Panel(
            "Throughput",
            "rows per second",
            throughput(batches, span),
            figures.short,
            lambda value: f"{figures.rate(value)} rows/s",
        )
    ]
    waiting = lag(batches, span)
    if waiting:
        dotted = "; dotted: not seen" if any(line.unseen for line in waiting) else ""
        panels.append(
            Panel(
                "Lag",
                f"records that wait, before and after each batch{dotted}",
                waiting,
                figures.short,
                lambda value: f"{figures.whole(round(value))} records",
            )
        )
    panels.append(
        Panel("Batch time", "from trigger to end", seconds, figures.axis_duration, figures.duration)
    )
    if any(each.state_rows for each in batches):
        rows = measured(batches, span, lambda each: float(each.state_rows))
        panels.append(
            Panel(
                "State",
                "rows kept",
                [line for line in rows if line.top],
                figures.short,
                lambda value: f"{figures.whole(round(value))} rows",
            )
        )
    if any(each.late or each.late_partly for each in batches):
        late = measured(batches, span, lambda each: float(each.late or 0) + each.late_partly)
        panels.append(
            Panel(
                "Late",
                "rows left out of each batch, wholly or in part",
                [line for line in late if line.top],
                figures.short,
                lambda value: f"{figures.whole(round(value))} rows",
            )
        )
    return draw(panels, span, restarts(batches), f"{title}: throughput and lag over time")


def _page(batches: Sequence[Progress], picture: str, title: str, *, is_live: bool) -> str:
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">\n' if is_live else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n{refresh}'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(_summary(batches))}</p>\n"
        f"{_table(batches) if batches else ''}{picture}\n</main>\n</body>\n</html>\n"
    )


def _summary(batches: Sequence[Progress]) -> str:
    if not batches:
        return "No batch has ended yet."
    span = span_of(batches)
    parts = [f"{figures.moment(span.begin)} to {figures.moment(span.end)} UTC"]
    parts.append(f"{len(batches):,} batches" if len(batches) != 1 else "1 batch")
    again = len(restarts(batches))
    if again:
        parts.append("1 restart" if again == 1 else f"{again} restarts")
    return ", ".join(parts)


_COLUMNS: Final = (
    *("query", "batches", "rows", "rows/s in batches", "batch, median", "longest"),
    *("lag", "waited at most", "late", "state", "watermark"),
)


def _table(batches: Sequence[Progress]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    rows = []
    for query, its_runs in runs(batches).items():
        cells = _figures(query, [each for run in its_runs for each in run])
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>\n"
    )


def _figures(query: str, batches: Sequence[Progress]) -> list[str]:
    last = batches[-1]
    rows = sum(each.rows for each in batches)
    busy_ms = sum(each.batch_ms for each in batches if each.rows)
    most = [sum(each.lag_before.values()) for each in batches if each.lag_before]
    state = f"{figures.whole(last.state_rows)} rows, {figures.size(last.state_bytes)}"
    return [
        query,
        figures.whole(len(batches)),
        figures.whole(rows),
        figures.rate(rows / max(busy_ms, 1) * 1000),
        figures.duration(median(each.batch_ms for each in batches)),
        figures.duration(max(each.batch_ms for each in batches)),
        figures.whole(last.lag_sum),
        figures.whole(max(most) if most else None),
        _late(batches),
        state if last.state_rows else "-",
        _watermark(last),
    ]


def _late(batches: Sequence[Progress]) -> str:
    """Rows that came too late, and their share; a dash where there is no watermark."""
    if all(each.late is None for each in batches):
        return "-"
    sum_of = LateRows()
    for each in batches:
        sum_of.add(each)
    least = "" if sum_of.is_exact else "at least "
    partly = f", {figures.whole(sum_of.partly)} in part" if sum_of.partly else ""
    return f"{least}{figures.whole(sum_of.late)} ({percent(sum_of.share)}){partly}"


def _watermark(last: Progress) -> str:
    if last.watermark is None:
        return "-"
    is_near = abs(last.at - last.watermark) < 12 * 3600
    return figures.clock(last.watermark) if is_near else figures.moment(last.watermark)
