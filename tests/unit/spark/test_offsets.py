"""What is worked out from offsets: limits, cuts, packing, losses."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import TopicPartition
from headrace.core.errors import InvalidConfig
from headrace.spark.offsets import (
    ROWS_PER_TASK,
    Range,
    divided,
    limited,
    losses,
    new_offsets,
    offsets_from,
    packed,
    ranges_between,
    require_same_partitions,
    to_json,
    waits_for_more,
)


def part(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


partitions = st.builds(part, st.integers(0, 20), st.sampled_from(["a", "b"]))
offsets = st.dictionaries(partitions, st.integers(0, 10**6), min_size=1, max_size=12)
ranges = offsets.flatmap(
    lambda starts: st.fixed_dictionaries({each: st.integers(1, 10**6) for each in starts}).map(
        lambda sizes: [Range(p, starts[p], starts[p] + sizes[p]) for p in starts]
    )
)


def test_offsets_are_written_in_order_because_spark_compares_them_as_text() -> None:
    one = to_json({part(10): 1, part(9): 2, part(0, "a"): 3})
    other = to_json({part(0, "a"): 3, part(9): 2, part(10): 1})
    assert json.dumps(one) == json.dumps(other) == '{"a": {"0": 3}, "t": {"9": 2, "10": 1}}'


@given(offsets)
def test_offsets_come_back_from_a_checkpoint(given: dict[TopicPartition, int]) -> None:
    assert offsets_from(json.loads(json.dumps(to_json(given)))) == given


def test_a_limit_is_split_in_proportion_to_what_waits() -> None:
    start = {part(0): 0, part(1): 100}
    end = {part(0): 300, part(1): 200}
    assert limited(start, end, 40) == {part(0): 30, part(1): 110}
    assert limited(start, end, 400) == end


@given(ranges, st.integers(1, 10**6))
def test_a_limited_batch_moves_on_in_every_partition_that_waits(
    waiting: list[Range], most: int
) -> None:
    start = {each.partition: each.start for each in waiting}
    end = {each.partition: each.end for each in waiting}
    taken = limited(start, end, most)
    assert all(start[each] < taken[each] <= end[each] for each in end)
    total = sum(taken[each] - start[each] for each in end)
    assert total <= most + len(end)


def test_a_partition_that_went_back_is_left_for_the_loss_report() -> None:
    start, end = {part(0): 50, part(1): 0}, {part(0): 5, part(1): 100}
    assert limited(start, end, 10)[part(0)] == 5


def test_a_batch_waits_for_its_least_but_no_longer_than_its_delay() -> None:
    assert waits_for_more(9, 10, waited_ms=0, delay_ms_max=100)
    assert not waits_for_more(10, 10, waited_ms=0, delay_ms_max=100)
    assert not waits_for_more(9, 10, waited_ms=100, delay_ms_max=100)
    assert not waits_for_more(0, None, waited_ms=0, delay_ms_max=100)
    assert new_offsets({part(0): 5}, {part(0): 9, part(1): 2}) == 6


@given(ranges, st.none() | st.integers(1, 60), st.none() | st.integers(10_000, 10**6))
def test_cut_ranges_cover_the_same_offsets_once(
    whole: list[Range], partitions_min: int | None, records_max: int | None
) -> None:
    cut = divided(whole, partitions_min, records_max)
    for each in whole:
        pieces = sorted(piece for piece in cut if piece.partition == each.partition)
        assert [piece.start for piece in pieces] == [each.start] + [p.end for p in pieces[:-1]]
        assert pieces[-1].end == each.end
    if partitions_min is not None:
        assert len(cut) >= min(partitions_min, sum(each.size for each in whole))
    if records_max is not None:
        assert max(piece.size for piece in cut) <= records_max
    assert divided(list(reversed(whole)), partitions_min, records_max) == cut


def test_large_ranges_are_cut_before_small_ones() -> None:
    cut = divided([Range(part(0), 0, 10), Range(part(1), 0, 90)], 4, None)
    assert [(each.partition.partition, each.size) for each in cut] == [
        (0, 10),
        (1, 30),
        (1, 30),
        (1, 30),
    ]


def test_empty_ranges_are_left_out() -> None:
    assert divided([Range(part(0), 5, 5), Range(part(1), 9, 3)], None, None) == []


def test_many_small_partitions_are_packed_into_few_tasks() -> None:
    tasks = packed([Range(part(n), 0, 100) for n in range(64)], tasks_min=2)
    assert [len(task) for task in tasks] == [32, 32]


def test_large_partitions_keep_a_task_each() -> None:
    tasks = packed([Range(part(n), 0, ROWS_PER_TASK) for n in range(8)], tasks_min=2)
    assert [len(task) for task in tasks] == [1] * 8


@given(ranges, st.integers(1, 8), st.none() | st.integers(10**6, 10**7))
def test_packing_loses_nothing_and_repeats(
    whole: list[Range], tasks_min: int, records_max: int | None
) -> None:
    tasks = packed(whole, tasks_min, records_max)
    assert sorted(each for task in tasks for each in task) == sorted(whole)
    assert all(tasks)
    assert len(tasks) >= min(tasks_min, len(whole))
    assert packed(list(reversed(whole)), tasks_min, records_max) == tasks
    if records_max is not None:
        assert max(sum(each.size for each in task) for task in tasks) <= records_max


def test_tens_of_thousands_of_tasks_are_planned_in_a_moment() -> None:
    """A backlog of a topic with many partitions: trying every task for each took minutes."""
    whole = [Range(part(0), n * ROWS_PER_TASK, (n + 1) * ROWS_PER_TASK) for n in range(30_000)]
    began = time.process_time()
    assert len(packed(whole, 2, ROWS_PER_TASK)) == 30_000
    cut = divided([Range(part(n), 0, 1_000_000) for n in range(1_000)], 30_000, None)
    assert len(cut) == 30_000
    assert time.process_time() - began < 5


def test_losses_are_told_in_words() -> None:
    start = {part(0): 5, part(1): 5, part(2): 5}
    end = {part(1): 3, part(2): 9, part(3): 7}
    gone, new, back = losses(start, end, {part(3): 4})
    assert gone == "partition t-0 is gone"
    assert new == "new partition t-3 starts at offset 4 instead of 0"
    assert back.startswith("partition t-1 ends at offset 3, before 5")
    assert losses(start, {**start, part(3): 1}, {part(3): 0}) == []


def test_a_batch_reads_what_lies_between_and_new_partitions_from_their_start() -> None:
    found = ranges_between(
        {part(0): 5, part(1): 5}, {part(0): 9, part(1): 5, part(2): 3}, {part(2): 0}
    )
    assert found == [Range(part(0), 5, 9), Range(part(2), 0, 3)]


def test_offsets_named_one_by_one_must_name_every_partition_and_no_other() -> None:
    require_same_partitions({part(0): 1}, [part(0)], "startingOffsets")
    with pytest.raises(InvalidConfig, match=r"startingOffsets must name every.*lacks t-1"):
        require_same_partitions({part(0): 1}, [part(0), part(1)], "startingOffsets")
    with pytest.raises(InvalidConfig, match="names t-1, which is not read"):
        require_same_partitions({part(0): 1, part(1): 1}, [part(0)], "startingOffsets")
