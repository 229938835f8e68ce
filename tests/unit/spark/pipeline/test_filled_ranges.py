"""Ranges of backfills: the same one has the same name, and others that share offsets are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.client import TopicPartition
from headrace.spark.lake import BatchTableWriter, table_options
from headrace.spark.offsets import Range
from headrace.spark.pipeline.filled_ranges import earlier_overlap, range_name
from tests.support.spark_tables import ARCHIVE, rows

A, B, C = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("other", 0)
QUERY = "clicks-table"


def fill(path: Path, name: str) -> None:
    chosen = table_options({"path": str(path), "onceAs": name}, ARCHIVE, overwrite=False)
    writer = BatchTableWriter(chosen)
    writer.commit([writer.write(iter([rows(range(3))]))])


def test_a_name_is_that_of_the_offsets_which_are_read() -> None:
    name = range_name(QUERY, {A: 3, B: 5}, {A: 7, B: 5})
    assert name == 'clicks-table-backfill {"clicks":{"0":[3,7]}}'
    assert name == range_name(QUERY, {C: 0, A: 3}, {C: 0, A: 7})
    assert name != range_name(QUERY, {A: 3}, {A: 8})


@pytest.mark.parametrize(
    ("start", "end", "shared"),
    [
        ({A: 0}, {A: 10}, None),
        ({A: 20}, {A: 30}, None),
        ({A: 0}, {A: 11}, Range(A, 10, 11)),
        ({A: 10}, {A: 21}, Range(A, 10, 20)),
        ({A: 19, B: 0}, {A: 25, B: 9}, Range(A, 19, 20)),
        ({B: 12}, {B: 15}, None),
        ({A: 10}, {A: 10}, None),
        ({C: 0}, {C: 99}, None),
    ],
)
def test_offsets_of_an_earlier_range_are_found(
    tmp_path: Path,
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    shared: Range | None,
) -> None:
    path = tmp_path / "table"
    fill(path, "somebody's own")
    fill(path, range_name(QUERY, {A: 10, B: 0}, {A: 20, B: 0}))
    fill(path, range_name("another-table", {C: 0, B: 0}, {C: 5, B: 99}))
    assert earlier_overlap(DeltaTable(path), QUERY, start, end) == shared
