"""The check of the crash matrix, seen to fail: a sink that forgets, and one that writes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.spark import lake
from headrace.spark.delta_table import QueryBatch, open_table
from tests.support.spark_faults import Compared, compare
from tests.support.spark_tables import StreamOfBatches, offsets_of, rows


def test_the_check_counts_what_is_lost_doubled_and_strange() -> None:
    assert compare([1, 2, 3], [1, 2, 3]) == Compared(0, 0, 0)
    assert compare([1, 2, 3], [1, 3, 3, 3, 9]) == Compared(lost=1, doubled=2, strange=1)


def test_a_table_sink_that_forgets_its_batches_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a driver killed after the sink's commit does: it runs the batch again."""

    class Forgetful:
        def __init__(self, table: Any) -> None:
            self._table = table

        def __getattr__(self, name: str) -> Any:
            return getattr(self._table, name)

        def transaction_version(self, query: str) -> None:
            """Nothing is remembered."""

        def history(self, limit: int) -> list[dict[str, Any]]:  # noqa: ARG002
            return []

        def create_write_transaction(self, *given: Any, **more: Any) -> None:
            more.pop("commit_properties")
            self._table.create_write_transaction(*given, **more)

    opened = open_table
    stream = StreamOfBatches(tmp_path / "table")
    stream.run(0, [rows(range(100))])
    stream.run(0, [rows(range(100))])
    assert compare(range(100), offsets_of(tmp_path / "table")) == Compared(0, 0, 0)
    monkeypatch.setattr(
        lake, "open_table", lambda path: Forgetful(opened(path)) if opened(path) else None
    )
    stream.run(0, [rows(range(100))])
    assert compare(range(100), offsets_of(tmp_path / "table")).doubled == 100


def test_a_table_sink_that_commits_before_it_writes_is_found_out(tmp_path: Path) -> None:
    """Killed in between, it takes the batch for written when it is run again."""
    path = tmp_path / "table"
    stream = StreamOfBatches(path)
    stream.run(0, [rows(range(100))])
    promise = QueryBatch(stream.query, 1, follows_others=False).commit_properties(None)
    table = DeltaTable(path)
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=promise)
    stream.run(1, [rows(range(100, 200))])
    assert compare(range(200), offsets_of(path)) == Compared(lost=100, doubled=0, strange=0)


def test_an_abort_that_does_not_ask_is_found_out(tmp_path: Path) -> None:
    """Trap 2 as it first was: files of a committed batch are removed, and rows are gone."""
    path = tmp_path / "table"
    stream = StreamOfBatches(path)
    stream.run(0, [rows(range(100))])
    for file in path.rglob("part-*.parquet"):
        file.unlink()
    with pytest.raises(FileNotFoundError):
        offsets_of(path)
