"""The visits of a user: clicks with no more than half an hour between them."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

GAP = 30 * 60 * 1_000_000  # microseconds, as all times here
Visit = tuple[int, int, int, float]  # began, ended, clicks, spent


class Visits(StatefulProcessor):
    """Keeps the visits of a user that may go on, and tells each once it is over.

    There may be several at a time: clicks come out of order, so that a late one may begin a visit
    before the newest, or join two into one. A visit is over when the watermark has passed its last
    click by the gap: Spark lets no click through after that which could belong to it.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._visits = handle.getListState(
            "visits", "began long, ended long, clicks long, spent double"
        )

    def handleInputRows(  # noqa: N802, as Spark names it
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        visits: list[Visit] = list(self._visits.get())
        has_timer = {ended for _, ended, *_ in visits}
        for frame in rows:
            for at, price in zip(frame["micros"], frame["price"].fillna(0), strict=True):
                visits.append((int(at), int(at), 1, float(price)))
        visits = joined(visits)
        self._visits.put(visits)
        for _, ended, *_ in visits:
            if ended not in has_timer:
                self._handle.registerTimer((ended + GAP) // 1000 + 1)
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        visits: list[Visit] = list(self._visits.get())
        now = timerValues.getCurrentWatermarkInMs() * 1000
        over = [each for each in visits if each[1] + GAP < now]
        going_on = [each for each in visits if each[1] + GAP >= now]
        if going_on:
            self._visits.put(going_on)
        else:
            self._visits.clear()
        if over:
            frame = pd.DataFrame(over, columns=["began", "ended", "clicks", "spent"])
            frame.insert(0, "user", key[0])
            yield frame


def joined(visits: Iterable[Visit]) -> list[Visit]:
    """Visits that are no further apart than the gap become one."""
    found: list[Visit] = []
    for visit in sorted(visits):
        began, ended, clicks, spent = visit
        if found and began - found[-1][1] <= GAP:
            before = found.pop()
            visit = (before[0], max(before[1], ended), before[2] + clicks, before[3] + spent)
        found.append(visit)
    return found
