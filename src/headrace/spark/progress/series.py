"""Batches as lines over time: throughput, lag, batch time, state.

A line is broken where a query was restarted: what happened between two runs is not known.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from headrace.spark.progress.measures import Progress

BINS: Final = 160
# More points than these are thinned to the highest of each bin.
POINTS_MAX: Final = 4 * BINS

Point = tuple[float, float]


@dataclass(slots=True)
class Line:
    """The course of one thing, in pieces; lines of one query have one look in all panels."""

    name: str
    look: int
    pieces: list[list[Point]] = field(default_factory=list)
    goes_on_unseen: bool = False
    """Whether the thing was there between the pieces too, as lag is while nobody reads."""

    @property
    def unseen(self) -> list[tuple[Point, Point]]:
        """From where it was seen last to where it was seen again."""
        if not self.goes_on_unseen:
            return []
        return [(before[-1], after[0]) for before, after in pairwise(filter(None, self.pieces))]

    @property
    def top(self) -> float:
        return max((y for piece in self.pieces for _, y in piece), default=0)


@dataclass(frozen=True, slots=True)
class Span:
    """The time that is drawn, cut into bins."""

    begin: float
    end: float

    @property
    def bin_seconds(self) -> float:
        return (self.end - self.begin) / BINS

    def bin_of(self, at: float) -> int:
        return min(BINS - 1, max(0, int((at - self.begin) / self.bin_seconds)))

    def bounds(self, number: int) -> tuple[float, float]:
        return self.begin + number * self.bin_seconds, self.begin + (number + 1) * self.bin_seconds


def span_of(batches: Sequence[Progress]) -> Span:
    begin = min(each.began_at for each in batches)
    end = max(each.at for each in batches)
    return Span(begin, max(end, begin + 1))


def runs(batches: Iterable[Progress]) -> dict[str, list[list[Progress]]]:
    """By query, the batches of each run in order."""
    found: dict[str, dict[str, list[Progress]]] = defaultdict(lambda: defaultdict(list))
    for each in batches:
        found[each.query][each.run].append(each)
    return {query: list(by_run.values()) for query, by_run in sorted(found.items())}


def restarts(batches: Iterable[Progress]) -> list[float]:
    """When work began again: in another process, or by a query that was started anew in one."""
    processes: dict[float, float] = {}
    moments = []
    for its_runs in runs(batches).values():
        for run in its_runs:
            since, began = run[0].watched_since, run[0].began_at
            processes[since] = min(began, processes.get(since, began))
        for before, after in pairwise(its_runs):
            if before[0].watched_since == after[0].watched_since:
                moments.append(after[0].began_at)
    return sorted([*moments, *sorted(processes.values())[1:]])


def throughput(batches: Sequence[Progress], span: Span) -> list[Line]:
    """Rows per second by query, each batch spread over the time since the one before it."""
    return [
        Line(query, number, [_rates(_spread(run), span) for run in its_runs])
        for number, (query, its_runs) in enumerate(runs(batches).items())
    ]


def _usual_wait(run: Sequence[Progress]) -> float:
    """Seconds from the end of one batch to that of the next that are nothing out of the common."""
    return 2 * median([after.at - before.at for before, after in pairwise(run)] or [0])


def _spread(run: Sequence[Progress]) -> list[tuple[float, float, int]]:
    """Beginning, end and rows of each batch, with no more idle time before it than is usual."""
    usual = _usual_wait(run)
    ended = run[0].began_at
    spread = []
    for each in run:
        begin = min(max(ended, each.at - usual), each.began_at)
        spread.append((begin, each.at, each.rows))
        ended = each.at
    return spread


def _rates(spread: Sequence[tuple[float, float, int]], span: Span) -> list[Point]:
    rows: dict[int, float] = defaultdict(float)
    for begin, end, count in spread:
        length = max(end - begin, 1e-3)
        for number in range(span.bin_of(begin), span.bin_of(end) + 1):
            low, high = span.bounds(number)
            rows[number] += count * max(0.0, min(high, end) - max(low, begin)) / length
    first, last = spread[0][0], spread[-1][1]
    points = []
    for number in range(span.bin_of(first), span.bin_of(last) + 1):
        low, high = (max(span.bounds(number)[0], first), min(span.bounds(number)[1], last))
        if high - low > 0.05 * span.bin_seconds:
            points.append(((low + high) / 2, rows[number] / (high - low)))
    if not points:  # a run that is short against what is drawn is a point
        total = sum(count for _, _, count in spread)
        points.append(((first + last) / 2, total / max(last - first, 1e-3)))
    return points


def lag(batches: Sequence[Progress], span: Span) -> list[Line]:
    """Records that wait, by query and topic: what waited before each batch, and what after."""
    by_query = runs(batches)
    lines: list[Line] = []
    for query, its_runs in by_query.items():
        topics = sorted({topic for run in its_runs for each in run for topic in each.lag})
        for topic in topics:
            name = topic if len(by_query) == 1 else f"{query}: {topic}"
            pieces = [thinned(_lag_points(run, topic), span) for run in its_runs]
            lines.append(Line(name, len(lines), pieces, goes_on_unseen=True))
    return lines


def _lag_points(run: Sequence[Progress], topic: str) -> list[Point]:
    usual = _usual_wait(run)
    points: list[Point] = []
    for each in run:
        if topic not in each.lag:
            continue
        if points and each.began_at - points[-1][0] > usual:
            # A query that waits has nothing to do: what it does next came shortly before.
            points.append((each.began_at - usual / 2, points[-1][1]))
        after = each.lag[topic]
        points += [(each.began_at, each.lag_before.get(topic, after)), (each.at, after)]
    return points


def measured(
    batches: Sequence[Progress], span: Span, what: Callable[[Progress], float]
) -> list[Line]:
    """A number of each batch, by query, where the batch ended."""
    return [
        Line(
            query,
            number,
            [thinned([(each.at, what(each)) for each in run], span) for run in its_runs],
        )
        for number, (query, its_runs) in enumerate(runs(batches).items())
    ]


def thinned(points: list[Point], span: Span) -> list[Point]:
    """No more points than can be told apart; peaks stay."""
    if len(points) <= POINTS_MAX:
        return points
    bins: dict[int, list[Point]] = defaultdict(list)
    for point in points:
        bins[span.bin_of(point[0])].append(point)
    kept = [max(found, key=lambda point: point[1]) for found in bins.values()]
    return [*kept, points[-1]]  # the last says how things are now


def nearby(line: Line, begin: float, end: float) -> float | None:
    """The highest point of a line in a stretch of time, for a reader who points there."""
    found = None
    for piece in line.pieces:
        low = bisect_left(piece, (begin,))
        for at, value in piece[low:]:
            if at > end:
                break
            found = value if found is None else max(found, value)
    return found
