"""Lag of groups as metrics: kept a while, bounded, and no fault of one group hurts another."""

import asyncio
from collections.abc import Collection

from headrace.client.core.group_models import GroupListing, PartitionLag
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.core.metrics import Family, Value
from headrace.web.group_metrics import CACHE_SECONDS, FAILURES, GROUPS, LAG, LEFT_OUT, GroupMetrics
from tests.support.metadata import InlineExecutor


class Admin:
    """Groups named `g0`, `g1`...; each a hundred records behind on one partition."""

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.listed = 0
        self.broken = ""

    async def list_groups(self) -> list[GroupListing]:
        self.listed += 1
        await asyncio.sleep(0)
        if self.broken == "all":
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        names = [f"g{number}" for number in reversed(range(self.groups))]
        return [GroupListing(name, "Stable", "classic", "consumer") for name in names]

    async def group_lags(
        self, groups: Collection[str], *, members: bool
    ) -> dict[str, list[PartitionLag]]:
        assert not members
        await asyncio.sleep(0)
        if self.broken in groups:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        lags = [
            PartitionLag(TopicPartition("t", 3), 5, 105, 100),
            PartitionLag(TopicPartition("t", 4), None, 105, None),
        ]
        return dict.fromkeys(groups, lags)


class Clock:
    seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


def values(families: list[Family]) -> dict[str, dict[tuple[str, ...], Value]]:
    return {family.metric.name: dict(family.samples) for family in families}


async def test_the_lag_of_each_group_is_told_per_partition() -> None:
    found = values(await GroupMetrics(lambda: Admin(2), Clock(), InlineExecutor()).collect())
    assert found == {
        GROUPS.name: {("classic", "Stable"): 2},
        LAG.name: {("g0", "t", "3"): 100, ("g1", "t", "3"): 100},
        LEFT_OUT.name: {(): 0},
        FAILURES.name: {(): 0},
    }


async def test_many_who_ask_at_once_cost_one_look() -> None:
    admin, clock = Admin(3), Clock()
    source = GroupMetrics(lambda: admin, clock, InlineExecutor())
    answers = await asyncio.gather(*(source.collect() for _ in range(5)))
    assert admin.listed == 1
    assert all(values(answer) == values(answers[0]) for answer in answers)
    clock.seconds += CACHE_SECONDS - 0.1
    await source.collect()
    assert admin.listed == 1
    clock.seconds += 0.2
    await source.collect()
    assert admin.listed == 2


async def test_what_is_beyond_the_bound_is_said_to_be_left_out() -> None:
    found = values(
        await GroupMetrics(lambda: Admin(9), Clock(), InlineExecutor(), groups_max=5).collect()
    )
    assert sorted(group for group, _, _ in found[LAG.name]) == ["g0", "g1", "g2", "g3", "g4"]
    assert found[LEFT_OUT.name] == {(): 4}
    assert found[GROUPS.name] == {("classic", "Stable"): 9}


async def test_a_group_that_cannot_be_asked_is_counted_and_hurts_no_other() -> None:
    admin = Admin(3)
    admin.broken = "g1"
    found = values(await GroupMetrics(lambda: admin, Clock(), InlineExecutor()).collect())
    assert sorted(group for group, _, _ in found[LAG.name]) == ["g0", "g2"]
    assert found[FAILURES.name] == {(): 1}


async def test_a_coordinator_that_does_not_answer_leaves_the_other_metrics_alone() -> None:
    admin = Admin(3)
    admin.broken = "all"
    assert values(await GroupMetrics(lambda: admin, Clock(), InlineExecutor()).collect()) == {
        FAILURES.name: {(): 1}
    }
