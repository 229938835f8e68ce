"""Changes merged into a Delta table: the newest row of a key stays, each batch counts once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from headrace.core.errors import InvalidConfig, InvalidRecord
from headrace.spark import delta_table, upsert
from headrace.spark.delta_table import (
    CheckpointOlderThanTable,
    PlainWrite,
    QueryBatch,
    Write,
    WrittenByOtherQuery,
)
from headrace.spark.upsert import DELETED, Merge, each_batch, upsert_options
from tests.support.spark_tables import OTHER_QUERY, QUERY

CHANGES = (
    StructType()
    .add("Id", IntegerType())
    .add("full name", StringType())
    .add("op", StringType())
    .add("offset", LongType())
)
_ARROW = pa.schema(
    [
        ("Id", pa.int32()),
        ("full name", pa.string()),
        ("op", pa.string()),
        ("offset", pa.int64()),
        (DELETED, pa.bool_()),
    ]
)
Change = tuple[int | None, str | None, int | None]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "customers"


class Customers:
    """A table of customers, and changes for it: (id, name, offset), deletions without a name."""

    def __init__(self, path: Path, query: str = QUERY, **options: str) -> None:
        self.path, self.query = path, query
        wanted = {"path": str(path), "on": "Id", "newestBy": "offset", **options}
        self.options = upsert_options(wanted, streaming=False)
        self.columns = self.merge(PlainWrite()).columns

    def merge(self, write: Write) -> Merge:
        return Merge(self.options, CHANGES, write)

    def changes(self, *given: Change) -> pa.Table:
        found = [
            {"Id": id_, "full name": name, "op": "u", "offset": offset, DELETED: name is None}
            for id_, name, offset in given
        ]
        return pa.Table.from_pylist(found, schema=_ARROW).select([*self.columns, DELETED])

    def batch(self, number: int, *given: Change) -> None:
        """What `each_batch` does, without Spark."""
        merge = self.merge(QueryBatch(self.query, number, self.options.may_follow_others))
        if not merge.is_done():
            assert merge.run(self.changes(*given))

    def names(self) -> dict[int, Any]:
        found = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        assert len({each["Id"] for each in found}) == len(found)
        return {each["Id"]: each["full name"] for each in found}


def test_new_keys_are_inserted_known_ones_updated_and_deleted_ones_gone(table: Path) -> None:
    customers = Customers(table)
    customers.batch(0, (1, "ada", 10), (2, "bob", 11))
    customers.batch(1, (1, "Ada", 12), (2, None, 13), (3, "cy", 14), (4, None, 15))
    assert customers.names() == {1: "Ada", 3: "cy"}


def test_a_batch_that_is_run_again_changes_nothing(table: Path) -> None:
    customers = Customers(table)
    customers.batch(0, (1, "ada", 10))
    customers.batch(1, (1, None, 11))
    version = DeltaTable(table).version()
    customers.batch(1, (1, "back", 12), (5, "eve", 13))
    assert customers.names() == {}
    assert DeltaTable(table).version() == version
    assert DeltaTable(table).transaction_version(QUERY) == 1


def test_a_checkpoint_older_than_the_table_is_refused(table: Path) -> None:
    customers = Customers(table)
    for number in range(3):
        customers.batch(number, (1, f"name {number}", number))
    with pytest.raises(CheckpointOlderThanTable, match=r"has batch 2 .* comes to batch 1 now"):
        customers.batch(1, (1, "restored", 9))
    assert customers.names() == {1: "name 2"}


def test_a_batch_that_the_table_has_with_other_offsets_is_refused(table: Path) -> None:
    customers = Customers(table)
    customers.merge(QueryBatch(QUERY, 0, offsets="up to 5")).run(customers.changes((1, "ada", 4)))
    assert customers.merge(QueryBatch(QUERY, 0, offsets="up to 5")).is_done()
    with pytest.raises(CheckpointOlderThanTable, match="with other offsets than its checkpoint"):
        customers.merge(QueryBatch(QUERY, 0, offsets="up to 9")).is_done()


def test_rows_and_their_batch_are_one_commit(table: Path) -> None:
    customers = Customers(table)
    customers.batch(0, (1, "ada", 10))
    before = DeltaTable(table).version()
    customers.batch(1, (1, "Ada", 11))
    found = DeltaTable(table)
    assert (found.version(), found.transaction_version(QUERY)) == (before + 1, 1)
    found.load_as_version(before)
    assert (found.transaction_version(QUERY), len(found.to_pyarrow_table())) == (0, 1)


def test_two_drivers_with_the_same_batch_cannot_both_merge_it(table: Path) -> None:
    """A driver that was thought dead wakes up after the other's commit."""
    customers = Customers(table)
    customers.batch(0, (1, "ada", 10))
    asleep = customers.merge(QueryBatch(QUERY, 1))
    assert not asleep.is_done()
    looked = DeltaTable(table)
    customers.batch(1, (2, "awake", 11))
    assert not asleep.run(customers.changes((2, "asleep", 12)))
    with pytest.raises(Exception, match="concurrent transaction"):
        asleep._into(looked, customers.changes((2, "asleep", 12)))
    assert customers.names() == {1: "ada", 2: "awake"}


@pytest.mark.parametrize(
    ("there", "comes", "wins"),
    [(10, 11, True), (10, 10, True), (10, 9, False), (None, 1, True), (1, None, False)],
)
def test_only_a_row_as_new_as_the_tables_replaces_it(
    table: Path, there: int | None, comes: int | None, wins: bool
) -> None:
    customers = Customers(table)
    customers.batch(0, (1, "there", there))
    customers.batch(1, (1, "comes", comes))
    assert customers.names() == {1: "comes" if wins else "there"}
    customers.batch(2, (1, None, 10 if wins else 0))
    assert customers.names() == ({1: "comes"} if comes == 11 else {} if wins else {1: "there"})


def test_rows_that_are_left_out_as_older_are_counted_in_the_log(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    customers = Customers(table)
    customers.batch(0, (1, "ada", 10), (2, "bob", 10), (3, "cy", 10))
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        customers.batch(1, (1, "moved", 0), (2, "new", 11), (3, None, 3), (4, "dee", 0))
    [said] = [each.getMessage() for each in caplog.records]
    assert "older than the table's were left out" in said
    assert "rows=1 newest_by=offset" in said


def test_queries_that_merge_at_the_same_time_both_get_through(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's commit lands between this one's look at the table and its commit."""
    ours = Customers(table, otherQueries="append")
    others = Customers(table, OTHER_QUERY, otherQueries="append")
    ours.batch(0, (1, "ada", 10))
    opened, turns = delta_table.open_table, iter([("between", 12)])

    def interrupted(path: str) -> Any:
        found = opened(path)
        for name, offset in turns:
            others.batch(0, (1, name, offset), (2, name, offset))
        return found

    merge = ours.merge(QueryBatch(QUERY, 1, follows_others=True))
    monkeypatch.setattr(upsert, "open_table", interrupted)
    assert merge.run(ours.changes((1, "older", 11), (3, "cy", 11)))
    assert ours.names() == {1: "between", 2: "between", 3: "cy"}
    assert DeltaTable(table).transaction_version(QUERY) == 1


def test_the_first_of_several_ordering_columns_decides(table: Path) -> None:
    customers = Customers(table, newestBy="op,offset")
    for number, (op, offset, name) in enumerate(
        [("b", 5, "first"), ("a", 9, "older"), ("b", 4, "older"), ("b", 6, "newer"), ("c", 1, "c")]
    ):
        one = pa.Table.from_pylist(
            [{"Id": 1, "full name": name, "op": op, "offset": offset, DELETED: False}], _ARROW
        )
        customers.merge(QueryBatch(QUERY, number)).run(one)
        assert customers.names() == {1: {"older": "first"}.get(name, name)}


def test_a_table_without_the_ordering_column_takes_what_comes_last(table: Path) -> None:
    customers = Customers(table, columns="Id,full name")
    customers.batch(0, (1, "ada", 10))
    customers.batch(1, (1, "Ada", 3))
    assert DeltaTable(table).to_pyarrow_table().to_pylist() == [{"Id": 1, "full name": "Ada"}]


def test_a_row_moves_to_the_partition_of_its_new_value(table: Path) -> None:
    customers = Customers(table, partitionBy="full name")
    customers.batch(0, (1, "ada", 10), (2, "bob", 11))
    customers.batch(1, (1, "bob", 12))
    assert customers.names() == {1: "bob", 2: "bob"}
    assert DeltaTable(table).metadata().partition_columns == ["full name"]


def test_a_row_without_a_key_is_refused_and_nothing_is_written(table: Path) -> None:
    customers = Customers(table)
    customers.batch(0, (1, "ada", 10))
    with pytest.raises(InvalidRecord, match="a row has no 'Id'"):
        customers.batch(1, (2, "bob", 11), (None, "nobody", 12))
    assert customers.names() == {1: "ada"}


def test_a_query_without_a_past_does_not_merge_into_anothers_table(table: Path) -> None:
    Customers(table).batch(0, (1, "ada", 10))
    with pytest.raises(WrittenByOtherQuery, match=r"was written by query .* checkpoint was lost"):
        Customers(table, OTHER_QUERY).batch(0, (1, "lost", 1))
    Customers(table, OTHER_QUERY, otherQueries="append").batch(0, (2, "bob", 1))
    assert Customers(table).names() == {1: "ada", 2: "bob"}


def test_a_backfill_with_a_name_happens_once_and_its_table_is_nobodys(table: Path) -> None:
    customers = Customers(table)
    january = customers.merge(PlainWrite("january"))
    assert not january.is_done()
    january.run(customers.changes((1, "ada", 10)))
    assert january.is_done()
    assert not january.run(customers.changes((2, "bob", 11)))
    customers.batch(0, (1, "Ada", 11))
    assert customers.names() == {1: "Ada"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": ""}, "option 'path' is missing"),
        ({"on": " "}, "option 'on' is missing"),
        ({"newestBy": ","}, "newestBy names no column"),
        ({"path": "s3://bucket/t"}, "must be an absolute path"),
        ({"otherQueries": "maybe"}, "is not refuse or append"),
        ({"onceAs": "x"}, "onceAs is for batch writes"),
        ({"deletewen": "x"}, "did you mean 'deleteWhen'"),
        ({"kafka.bootstrap.servers": "h:1"}, "has no meaning for a table"),
    ],
)
def test_wrong_options_are_refused_before_a_query_starts(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        each_batch({"path": "/data/t", "on": "Id", "newestBy": "offset", **given})


def test_a_batch_write_has_no_checkpoint() -> None:
    given = {"path": "/data/t", "on": "Id", "newestBy": "offset", "checkpointLocation": "/c"}
    assert upsert_options(given, streaming=True).checkpoint == "/c"
    with pytest.raises(InvalidConfig, match="checkpointLocation is for streams"):
        upsert_options(given, streaming=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": "id"}, "on: 'id' is not one of Id, full name"),
        ({"newestBy": "at"}, "newestBy: 'at' is not one of"),
        ({"columns": "Id,colour"}, "columns: 'colour' is not one of"),
        ({"columns": "offset"}, "on: 'Id' is not one of offset"),
        ({"partitionBy": "colour"}, "partitionBy: 'colour' is not one of"),
        ({"columns": "Id"}, "column 'full name' is missing here and string in the table"),
        ({"partitionBy": "op"}, "is partitioned by nothing"),
    ],
)
def test_rows_that_do_not_fit_are_refused(table: Path, given: dict[str, str], said: str) -> None:
    Customers(table).batch(0, (1, "ada", 10))
    with pytest.raises(InvalidConfig, match=said):
        Customers(table, **given)
