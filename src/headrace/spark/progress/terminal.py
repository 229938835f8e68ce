"""Progress for people: a live table where stderr is a terminal, else a line per batch."""

import sys
import threading
from typing import TYPE_CHECKING, Protocol, TextIO

from headrace.spark.progress.figures import clock, duration, moment, rate, size, whole
from headrace.spark.progress.late import LateRows, in_short
from headrace.spark.progress.measures import Progress
from headrace.spark.reasons import reason_in

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

RECENT = 24
_BARS = "▁▂▃▄▅▆▇█"


class Screen(Protocol):
    """Something that shows batches as they end."""

    def started(self, query: str) -> None: ...

    def show(self, progress: Progress) -> None: ...

    def ended(self, query: str, error: str | None) -> None: ...

    def close(self) -> None: ...


def open_screen(stream: TextIO | None = None) -> Screen:
    """The screen that fits where stderr leads."""
    from rich.console import Console

    console = Console(file=stream or sys.stderr, highlight=False)
    return LiveTable(console) if console.is_terminal else Lines(stream or sys.stderr)


class Lines:
    """One line per batch, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def started(self, query: str) -> None:
        self._say(f"{query}: started")

    def show(self, progress: Progress) -> None:
        self._say(line(progress))

    def ended(self, query: str, error: str | None) -> None:
        self._say(f"{query}: failed: {reason_in(error) or error}" if error else f"{query}: ended")

    def close(self) -> None:
        """There is nothing to put back."""

    def _say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


def line(progress: Progress) -> str:
    """A batch in a line, the parts that it has."""
    parts = [
        f"{clock(progress.at)} {progress.query}: batch {progress.batch}",
        f"{whole(progress.rows)} rows in {duration(progress.batch_ms)}",
        f"{rate(progress.rows_per_second)} rows/s",
    ]
    parts += [f"lag {topic} {whole(lag)}" for topic, lag in progress.lag.items()]
    if progress.state_rows:
        parts.append(f"state {whole(progress.state_rows)} rows, {size(progress.state_bytes)}")
    late = in_short(progress)
    if late is not None:
        parts.append(late)
    if progress.watermark is not None:
        parts.append(f"watermark {moment(progress.watermark)}")
    return "; ".join(parts)


class _Row:
    """What the table knows of a query."""

    def __init__(self) -> None:
        self.last: Progress | None = None
        self.rows = 0
        self.late = LateRows()
        self.recent: list[float] = []
        self.end: str | None = None


class LiveTable:
    """A table of all queries that stays in place; what others print appears above it."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def started(self, query: str) -> None:
        with self._lock:
            self._rows.setdefault(query, _Row()).end = None
            self._draw()

    def show(self, progress: Progress) -> None:
        with self._lock:
            row = self._rows.setdefault(progress.query, _Row())
            row.last, row.end = progress, None
            row.rows += progress.rows
            row.late.add(progress)
            row.recent = [*row.recent, progress.rows_per_second][-RECENT:]
            self._draw()

    def ended(self, query: str, error: str | None) -> None:
        with self._lock:
            row = self._rows.setdefault(query, _Row())
            row.end = f"failed: {reason_in(error) or error}" if error else "ended"
            self._draw()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(draw(self._rows), refresh=True)


def draw(rows: dict[str, _Row]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("query", overflow="fold")
    for name in ("batch", "rows", "rows/s", "batch time", "waited", "lag", "late", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("rows/s of late", no_wrap=True)
    for query, row in sorted(rows.items()):
        named = Text(query)
        if row.end is not None:
            named.append(f" {row.end}", "red" if row.end.startswith("failed") else "dim")
        last = row.last
        if last is None:
            table.add_row(named, *["-"] * 8)
            continue
        lag = last.lag_sum
        table.add_row(
            named,
            whole(last.batch),
            whole(row.rows),
            rate(last.rows_per_second),
            duration(last.batch_ms),
            whole(sum(last.lag_before.values()) if last.lag_before else None),
            Text(whole(lag), "yellow" if lag else ""),
            _late(row.late, last),
            f"{whole(last.state_rows)} rows" if last.state_rows else "-",
            Text(spark_line(row.recent), "cyan"),
        )
        if len(last.lag) > 1:
            for topic, each in sorted(last.lag.items()):
                before = last.lag_before.get(topic)
                cells = [*[""] * 4, whole(before), whole(each)]
                table.add_row(Text(f"  {topic}"), *cells, style="dim")
    return table


def _late(late: LateRows, last: Progress) -> "Text":
    """Rows that came too late since the run began; `+` for at least so many."""
    from rich.text import Text

    if last.late is None:
        return Text("-")
    return Text(whole(late.late) + ("" if late.is_exact else "+"), "yellow" if late.late else "")


def spark_line(values: list[float]) -> str:
    """The course of some values, a bar each, the highest as high as a letter."""
    top = max(values, default=0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)
