"""One finished batch in numbers, read from the JSON in which Spark tells its progress."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from headrace.spark.options import LATE_COUNTS

Lag = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A batch of a query; `run` tells apart what a query did before and after a restart.

    There is no lag for a batch that a run takes over from one that was killed: Spark does not look
    how far topics go before it does such a batch again.
    """

    query: str
    run: str
    batch: int
    at: float
    """When it ended, in seconds since 1970."""
    rows: int
    rows_per_second: float
    """Of the time the batch took; a query that waits for its trigger does less over all."""
    batch_ms: int
    lag: Lag = field(default_factory=dict)
    """Records by topic that it left for later, as the topics were when it was planned."""
    lag_before: Lag = field(default_factory=dict)
    """The same before it: what waited when it was planned."""
    state_rows: int = 0
    state_bytes: int = 0
    watermark: float | None = None
    """Seconds since 1970; None before the first, or where there is none."""
    late: int | None = None
    """Rows that were left out for they came too late; None where there is no watermark."""
    late_of: int = 0
    """How many rows came to where they are left out."""
    late_partly: int = 0
    """Rows that were late for some of their (sliding) windows, and are in the others."""
    late_is_exact: bool = True
    """Whether `late` is counted by us, row by row; else it is Spark's number, and too small."""
    watched_since: float = 0.0
    """When the process began to watch that saw this batch, in seconds since 1970."""

    @property
    def began_at(self) -> float:
        return self.at - self.batch_ms / 1000

    @property
    def lag_sum(self) -> int | None:
        """Over all topics, None where offsets are not those of topics."""
        return sum(self.lag.values()) if self.lag else None


def from_spark(told: Mapping[str, Any], watched_since: float = 0.0) -> Progress:
    """What `StreamingQueryProgress.json` holds, once parsed."""
    batch_ms = int(told.get("batchDuration") or told["durationMs"].get("triggerExecution", 0))
    sources = told.get("sources", [])
    rows = told.get("numInputRows")
    if rows is None:
        rows = sum(each.get("numInputRows", 0) for each in sources)
    lag: Lag = {}
    lag_before: Lag = {}
    for source in sources:
        for topic, (before, after) in _lags(source).items():
            # Two sources of a query may read one topic: the one further behind counts.
            lag[topic] = max(after, lag.get(topic, 0))
            lag_before[topic] = max(before, lag_before.get(topic, 0))
    operators = told.get("stateOperators", [])
    late = _late(told, rows)
    return Progress(
        query=told.get("name") or str(told["id"]),
        run=str(told["runId"]),
        batch=int(told["batchId"]),
        at=_seconds(told["timestamp"]) + batch_ms / 1000,
        rows=rows,
        # Not Spark's own figure, which is missing where a batch took no time or had no rows.
        rows_per_second=rows / max(batch_ms, 1) * 1000,
        batch_ms=batch_ms,
        lag=lag,
        lag_before=lag_before,
        state_rows=sum(int(each.get("numRowsTotal", 0)) for each in operators),
        state_bytes=sum(int(each.get("memoryUsedBytes", 0)) for each in operators),
        watermark=_watermark(told.get("eventTime") or {}),
        late=None if late is None else late.late,
        late_of=0 if late is None else late.of,
        late_partly=0 if late is None else late.partly,
        late_is_exact=late is None or late.is_exact,
        watched_since=watched_since,
    )


def to_line(progress: Progress) -> str:
    """A line of the history."""
    return json.dumps(asdict(progress), separators=(",", ":")) + "\n"


def from_line(line: str) -> Progress | None:
    """The batch of a line, or None if the line was cut short or is something else."""
    try:
        read = json.loads(line)
        known = {each.name: read[each.name] for each in fields(Progress) if each.name in read}
        progress = Progress(**known)
        # Numbers that are no numbers would only be noticed when something is drawn.
        return progress if progress.at + progress.rows + progress.batch_ms >= 0 else None
    except (ValueError, TypeError, KeyError):
        return None


def _lags(source: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """By topic, how far a source was behind before and after a batch."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return {}
    start = _offsets(source.get("startOffset"))
    read = int(source.get("numInputRows") or 0)
    ends = sum(sum(each.values()) for each in end.values())
    lags = {}
    for topic, newest in latest.items():
        reached = end.get(topic, {})
        after = _distance(reached, newest)
        if start is None:
            # The first batch of a query has no start; what it read is what it had before it.
            share = sum(reached.values()) / ends if ends else 1
            before = after + round(read * share)
        else:
            before = _distance(start.get(topic, {}), newest)
        lags[topic] = before, after
    return lags


def _distance(reached: Mapping[str, int], newest: Mapping[str, int]) -> int:
    # A topic that was made anew ends before the place a query has reached.
    return sum(max(0, end - reached.get(each, 0)) for each, end in newest.items())


def _offsets(told: Any) -> dict[str, dict[str, int]] | None:
    """Offsets in the shape `{"topic": {"0": 17}}`, which not every source has."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, dict):
        return None
    for partitions in told.values():
        if not isinstance(partitions, dict):
            return None
        for number, offset in partitions.items():
            if not number.isdigit() or type(offset) is not int:
                return None
    return told


@dataclass(frozen=True, slots=True)
class _Late:
    late: int
    of: int
    partly: int
    is_exact: bool


def _late(told: Mapping[str, Any], rows: int) -> _Late | None:
    """Our count before the first step that leaves rows out, and Spark's of all others.

    Spark tells operators from the last to the first. Of windows it counts what is left after rows
    have been added up, so that its number alone is a lower bound.
    """
    if "watermark" not in (told.get("eventTime") or {}):
        return None
    dropped = [
        int(each.get("numRowsDroppedByWatermark", 0)) for each in told.get("stateOperators", [])
    ]
    counted = (told.get("observedMetrics") or {}).get(LATE_COUNTS)
    if counted is None or counted["unknown"]:
        return _Late(sum(dropped), rows, 0, is_exact=not rows and not sum(dropped))
    later = sum(dropped[:-1])
    late = int(counted["late"]) + later
    return _Late(late, int(counted["rows"]), int(counted["partly"]), is_exact=not later)


def _watermark(event_time: Mapping[str, str]) -> float | None:
    seconds = _seconds(event_time["watermark"]) if "watermark" in event_time else 0
    return seconds or None  # 1970 is what Spark says before the first


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).astimezone(UTC).timestamp()
