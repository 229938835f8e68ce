"""Groups in the metrics: how many are in which state, and how far each is behind.

Lag is asked for through the client, like anybody would; so it is the same number here, on the
command line and over HTTP. What was found is kept for a few seconds, however many scrape, and
there is a bound on how much of it there can be.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from headrace.client.core.group_models import GroupListing, PartitionLag
from headrace.core.errors import HeadraceError
from headrace.core.metrics import Family, Metric, Sample
from headrace.core.runtime import Executor

CACHE_SECONDS: Final = 5.0
# In alphabetical order; the others are counted as left out.
GROUPS_MAX: Final = 500
PARTITIONS_MAX: Final = 10_000
GROUPS_AT_ONCE: Final = 50
# Groups that are still being loaded must not hold up all the other metrics.
COLLECT_SECONDS_MAX: Final = 3.0

GROUPS: Final = Metric("headrace_groups", "gauge", "Groups by state.", ("type", "state"))
LAG: Final = Metric(
    "headrace_group_lag",
    "gauge",
    "Records between what a group has committed and the end of the partition.",
    ("group", "topic", "partition"),
)
LEFT_OUT: Final = Metric(
    "headrace_group_lag_left_out",
    "gauge",
    f"Groups whose lag is not listed: beyond {GROUPS_MAX} groups or {PARTITIONS_MAX} partitions.",
)
FAILURES: Final = Metric(
    "headrace_group_lag_failures_total", "counter", "Groups whose lag could not be found out."
)


class GroupAdmin(Protocol):
    """What of `AsyncAdmin` is needed."""

    def list_groups(self) -> Awaitable[Sequence[GroupListing]]: ...

    def group_lags(
        self, groups: Collection[str], *, members: bool
    ) -> Awaitable[Mapping[str, Sequence[PartitionLag]]]: ...


class GroupMetrics:
    """A source of metrics; `seconds` is the clock by which findings grow old.

    `admin` is asked for when it is first needed: it loads a good part of the protocol.
    """

    def __init__(
        self,
        admin: Callable[[], GroupAdmin],
        seconds: Callable[[], float],
        executor: Executor,
        *,
        groups_max: int = GROUPS_MAX,
    ) -> None:
        self._admin = admin
        self._seconds = seconds
        self._executor = executor
        self._groups_max = groups_max
        self._loaded = False
        self._failures = 0
        self._found_at = float("-inf")
        self._found: list[Family] = []
        self._finding = asyncio.Lock()

    async def collect(self) -> list[Family]:
        """What was found in the last few seconds, or else anew."""
        async with self._finding:
            if not self._loaded:
                # Elsewhere, since loading would hold up the event loop.
                await self._executor.run(self._admin)
                self._loaded = True
            if self._seconds() - self._found_at >= CACHE_SECONDS:
                self._found = await self._find()
                self._found_at = self._seconds()
            return self._found

    async def _find(self) -> list[Family]:
        try:
            async with asyncio.timeout(COLLECT_SECONDS_MAX):
                groups = sorted(await self._admin().list_groups(), key=lambda group: group.group_id)
        except (HeadraceError, TimeoutError):
            self._failures += 1
            return [FAILURES.value(self._failures)]
        states = Counter((group.group_type, group.state) for group in groups)
        asked = [group.group_id for group in groups[: self._groups_max]]
        lags: list[Sample] = []
        told = 0
        for start in range(0, len(asked), GROUPS_AT_ONCE):
            some = asked[start : start + GROUPS_AT_ONCE]
            found = await self._lags_of(some)
            if len(lags) + len(found) > PARTITIONS_MAX:
                break
            told += len(some)
            lags += found
        return [
            GROUPS.each([(state, count) for state, count in sorted(states.items())]),
            LAG.each(lags),
            LEFT_OUT.value(len(groups) - told),
            FAILURES.value(self._failures),
        ]

    async def _lags_of(self, groups: Sequence[str]) -> list[Sample]:
        """Of all together or, should that fail, of each that will answer."""
        try:
            async with asyncio.timeout(COLLECT_SECONDS_MAX):
                found = await self._admin().group_lags(groups, members=False)
        except (HeadraceError, TimeoutError) as error:
            if len(groups) == 1 or isinstance(error, TimeoutError):
                self._failures += len(groups)
                return []
            return [sample for group in groups for sample in await self._lags_of([group])]
        return [
            ((group, each.partition.topic, str(each.partition.partition)), each.lag)
            for group, lags in found.items()
            for each in lags
            if each.lag is not None
        ]
