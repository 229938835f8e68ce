"""Batches into a Delta table: each exactly once, whatever is run again or given up."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, DoubleType, StringType, StructType, TimestampType

from headrace.core.errors import InvalidConfig
from headrace.spark import delta_table, lake, table_files
from headrace.spark.delta_table import (
    CheckpointOlderThanTable,
    QueryBatch,
    RowsOfOthers,
    WrittenByOtherQuery,
)
from headrace.spark.lake import (
    BatchTableWriter,
    StreamTableWriter,
    TablePathNotShared,
    table_options,
)
from headrace.spark.pipeline.tables import files_by_names
from tests.support.spark_tables import (
    ARCHIVE,
    OTHER_QUERY,
    StreamOfBatches,
    offsets_of,
    parquet_files,
    rows,
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def test_batches_of_a_query_are_in_the_table(table: Path) -> None:
    stream = StreamOfBatches(table)
    stream.run(0, [rows(range(5)), rows(range(5, 10))])
    stream.run(1, [rows(range(10, 15))])
    assert offsets_of(table) == list(range(15))
    assert DeltaTable(table).transaction_version(stream.query) == 1


def test_a_batch_that_is_run_again_after_its_commit_is_written_once(table: Path) -> None:
    stream = StreamOfBatches(table)
    stream.run(0, [rows(range(5))])
    before = parquet_files(table)
    stream.run(0, [rows(range(5))])
    assert offsets_of(table) == list(range(5))
    assert parquet_files(table) == before


def test_trap_2_abort_after_a_commit_that_landed_removes_nothing(table: Path) -> None:
    stream = StreamOfBatches(table)
    writer = stream.writer()
    message = stream.task(writer, 0, [rows(range(5))])
    writer.commit([message], 0)
    writer.abort([message], 0)
    assert offsets_of(table) == list(range(5))


def test_trap_3_abort_finds_what_tasks_left_though_nobody_lists_it(table: Path) -> None:
    """It is called on a writer made anew; one task that has ended names the others' files too."""
    stream = StreamOfBatches(table)
    stream.run(0, [rows(range(5))])
    before = parquet_files(table)
    writer = stream.writer()
    told = stream.task(writer, 1, [rows(range(5, 10))], task=0)
    stream.task(writer, 1, [rows(range(10, 15))], task=1, attempt=1)
    assert parquet_files(table) > before
    stream.writer().abort([told, None], 1)
    assert parquet_files(table) == before
    assert offsets_of(table) == list(range(5))


def test_a_task_of_a_stage_that_runs_again_has_files_of_its_own(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts are counted from 0 again, and the task of the lost stage may not have ended."""

    class Task:
        def __init__(self, number: int) -> None:
            self._number = number

        def partitionId(self) -> int:  # noqa: N802
            return 3

        def attemptNumber(self) -> int:  # noqa: N802
            return 0

        def taskAttemptId(self) -> int:  # noqa: N802
            return self._number

        def getLocalProperty(self, key: str) -> str | None:  # noqa: ARG002, N802
            return None

    writer = StreamOfBatches(table).writer()
    found = set()
    for task in (Task(11), Task(12)):
        monkeypatch.setattr(TaskContext, "get", lambda task=task: task)
        found |= {file.path for file in writer.write(iter([rows(range(5))])).files}
    assert len(found) == 2


def test_abort_leaves_the_files_of_other_writers_alone(table: Path) -> None:
    stream = StreamOfBatches(table)
    running, failed = stream.writer(), stream.writer()
    message = stream.task(running, 0, [rows(range(5))])
    failed.abort([None], 0)
    running.commit([message], 0)
    assert offsets_of(table) == list(range(5))


def test_a_task_that_fails_removes_its_own_files(table: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(range(5))
        raise OSError("lost the source")

    stream = StreamOfBatches(table)
    writer = stream.writer()
    with pytest.raises(OSError, match="lost the source"):
        stream.task(writer, 0, broken())  # type: ignore[arg-type]  # any iterable will do
    assert parquet_files(table) == set()


def test_two_drivers_with_the_same_batch_cannot_both_commit_it(table: Path) -> None:
    """A driver that was thought dead wakes up between the other's look and its commit."""
    stream = StreamOfBatches(table)
    stream.run(0, [rows(range(5))])
    asleep, awake = stream.writer(), stream.writer()
    late = stream.task(asleep, 1, [rows(range(5, 10))])
    looked = DeltaTable(table)
    awake.commit([stream.task(awake, 1, [rows(range(5, 10))])], 1)
    with pytest.raises(Exception, match="Concurrent transaction"):
        asleep._commit(looked, late.files, QueryBatch(stream.query, 1))
    assert offsets_of(table) == list(range(10))


@pytest.mark.parametrize(
    ("column", "value"), [("topic", "clicks"), ("partition", 0), ("offset", 3), ("key", b"k3")]
)
def test_rows_are_found_by_every_column(table: Path, column: str, value: object) -> None:
    """Readers leave files out by what the table's log says of them, so it must not mislead."""
    StreamOfBatches(table).run(0, [rows(range(5))])
    found = DeltaTable(table).to_pyarrow_dataset().to_table(filter=pc.field(column) == value)
    assert 3 in found.column("offset").to_pylist()


def test_an_archive_lies_by_topic_and_day(table: Path) -> None:
    stream = StreamOfBatches(table, partitionBy="topic,date")
    mixed = pa.Table.from_batches([rows([1], topic="a"), rows([2], topic="b", day=2)])
    stream.run(0, mixed.combine_chunks().to_batches())
    directories = {str(each.parent.relative_to(table)) for each in table.rglob("part-*")}
    assert directories == {"topic=a/date=2026-03-01", "topic=b/date=2026-03-02"}
    found = DeltaTable(table).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(each["topic"], str(each["date"]), each["value"]) for each in found] == [
        ("a", "2026-03-01", b"v1"),
        ("b", "2026-03-02", b"v2"),
    ]


def test_more_partition_values_than_files_may_be_open_lose_nothing(table: Path) -> None:
    stream = StreamOfBatches(table, partitionBy="offset")
    stream.run(0, [rows(range(100)), rows(range(50, 150))])
    assert offsets_of(table) == sorted([*range(100), *range(50, 150)])


def test_many_partition_values_in_turn_have_a_file_each(table: Path) -> None:
    """Though more than can be open: rows wait for their file, and it for them."""
    stream = StreamOfBatches(table, partitionBy="offset")
    stream.run(0, [rows(range(100)) for _ in range(5)])
    assert len(parquet_files(table)) == 100
    assert offsets_of(table) == sorted([*range(100)] * 5)


def test_what_waits_is_bounded_and_nothing_of_it_is_lost(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_WAITING_BYTES_MAX", 50_000)
    monkeypatch.setattr(table_files, "_OPEN_FILES_MAX", 3)
    options = table_options({"path": str(table)}, ARCHIVE, overwrite=False)
    attempt = table_files.Attempt("", 0, 0, 0, "a" * 32)
    with table_files.Stage(table, options.schema, ("offset",), attempt) as stage:
        for _ in range(20):
            stage.add(rows(range(10)))
            assert stage._waiting_bytes <= 50_000
            assert len(stage._open) <= 3
    stats = [json.loads(each.stats)["numRecords"] for each in stage.finished]
    assert sum(stats) == 200
    assert sum(pq.read_metadata(each).num_rows for each in table.rglob("part-*")) == 200


@pytest.mark.parametrize("fails_at", ["write", "close"])
def test_a_full_disk_is_told_as_such_and_leaves_no_files(
    table: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    """What cannot be written cannot be closed properly either."""

    class FullDisk(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow has no types
        def write_table(self, rows: pa.Table, *_: object) -> None:
            if fails_at == "write":
                raise OSError(errno.ENOSPC, "no space left")
            super().write_table(rows)

        def close(self) -> None:
            if self.is_open:
                super().close()
                raise OSError(
                    errno.ENOSPC, "no space left" if fails_at == "close" else "hides the cause"
                )

    monkeypatch.setattr(pq, "ParquetWriter", FullDisk)
    stream = StreamOfBatches(table, partitionBy="topic")
    with pytest.raises(OSError, match="no space left"):
        stream.task(stream.writer(), 0, [rows([1], topic="a"), rows([2], topic="b")])
    assert parquet_files(table) == set()


def test_files_that_the_driver_does_not_see_are_not_committed(table: Path) -> None:
    """An executor's own disk is at the same path: the table would name files that are nowhere."""
    stream = StreamOfBatches(table)
    stream.run(0, [rows(range(5))])
    writer = stream.writer()
    message = stream.task(writer, 1, [rows(range(5, 10))])
    (path,) = [table / each.path for each in message.files]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(TablePathNotShared, match=f"the driver finds {len(whole) - 1}: the driver"):
        writer.commit([message], 1)
    path.unlink()
    with pytest.raises(TablePathNotShared, match=r"the driver does not find it: .* must share"):
        writer.commit([message], 1)
    assert offsets_of(table) == list(range(5))


def test_an_empty_text_is_no_partition_value_and_becomes_null(table: Path) -> None:
    """As Delta has it: its log cannot tell the two apart."""
    stream = StreamOfBatches(table, partitionBy="topic")
    stream.run(0, [rows([1], topic=""), rows([2], topic="a")])
    assert [each.parent.name for each in sorted(table.rglob("part-*"))] == [
        "topic=__HIVE_DEFAULT_PARTITION__",
        "topic=a",
    ]
    found = DeltaTable(table).to_pyarrow_table().sort_by("offset")
    assert found.column("topic").to_pylist() == [None, "a"]


def test_directories_tell_the_values_as_spark_names_them(table: Path) -> None:
    names = ["New York", "a/b", "é", "a%20b", "a=b"]
    stream = StreamOfBatches(table, partitionBy="topic")
    stream.run(0, [rows([n], topic=name) for n, name in enumerate(names)])
    directories = {each.parent.name for each in table.rglob("part-*")}
    assert directories == {
        f"topic={each}" for each in ("New%20York", "a%2Fb", "é", "a%2520b", "a%3Db")
    }
    found = DeltaTable(table).to_pyarrow_table().sort_by("offset")
    assert found.column("topic").to_pylist() == names
    named, unnamed = files_by_names(DeltaTable(table), str(table))
    assert {Path(each) for each in named} == set(table.rglob("part-*"))
    assert unnamed == {}


def test_files_in_directories_that_mislead_are_told_by_the_values_of_the_log(table: Path) -> None:
    schema = pa.schema([("topic", pa.string()), ("offset", pa.int64())])
    there = pa.table({"topic": ["", "a", "é"], "offset": [1, 2, 3]}, schema)
    write_deltalake(table, there, partition_by=["topic"])
    named, unnamed = files_by_names(DeltaTable(table), str(table))
    assert [Path(each).parent.name for each in named] == ["topic=a"]
    assert set(unnamed) == {(("topic", None),), (("topic", "é"),)}


def test_values_that_no_directory_can_have_keep_apart(table: Path) -> None:
    stream = StreamOfBatches(table, partitionBy="topic")
    names = ["a/b", "a_b", "a b%", "../up"]
    stream.run(0, [rows([n], topic=name) for n, name in enumerate(names)])
    found = DeltaTable(table).to_pyarrow_table().sort_by("offset")
    assert found.column("topic").to_pylist() == names
    assert all(table in each.parents for each in table.parent.rglob("part-*"))


def test_a_query_without_a_past_does_not_write_after_another(table: Path) -> None:
    """What happens when a checkpoint is lost: the query would begin anew and write twice."""
    StreamOfBatches(table).run(0, [rows(range(5))])
    with pytest.raises(WrittenByOtherQuery, match=r"was written by query .* checkpoint was lost"):
        StreamOfBatches(table, OTHER_QUERY).run(0, [rows(range(5))])
    assert offsets_of(table) == list(range(5))


def test_a_query_that_replaces_rows_leaves_those_alone_that_no_query_has_written(
    table: Path,
) -> None:
    write_deltalake(table, pa.table({"mine": [1, 2]}))
    with pytest.raises(RowsOfOthers, match="mode complete would replace all of them"):
        StreamOfBatches(table, overwrite=True).run(0, [rows(range(5))])
    assert DeltaTable(table).to_pyarrow_table().column("mine").to_pylist() == [1, 2]
    StreamOfBatches(table, overwrite=True, otherQueries="append").run(0, [rows(range(5))])
    for batch in (1, 2):
        StreamOfBatches(table, overwrite=True).run(batch, [rows(range(batch))])
    assert offsets_of(table) == [0, 1]


def test_that_a_query_wrote_the_table_is_known_however_much_came_after_it(table: Path) -> None:
    StreamOfBatches(table).run(0, [rows(range(2))])
    few = DeltaTable(table).to_pyarrow_table()
    for _ in range(51):
        write_deltalake(table, few, mode="append")
    DeltaTable(table).create_checkpoint()
    with pytest.raises(WrittenByOtherQuery, match="was written by another query"):
        StreamOfBatches(table, OTHER_QUERY).run(0, [rows(range(5))])


def test_a_checkpoint_older_than_the_table_is_refused_and_its_files_are_gone(table: Path) -> None:
    """One that was brought back reads from there again, but in other batches than before."""
    stream = StreamOfBatches(table)
    for batch in range(5):
        stream.run(batch, [rows(range(batch * 10, batch * 10 + 10))])
    before = parquet_files(table)
    for batch in (2, 3):
        with pytest.raises(CheckpointOlderThanTable, match=f"comes to batch {batch} now: it is ol"):
            stream.run(batch, [rows(range(20, 90))])
    assert parquet_files(table) == before
    assert offsets_of(table) == list(range(50))


def test_a_checkpoint_that_is_one_batch_older_is_told_by_its_offsets(
    table: Path, tmp_path: Path
) -> None:
    """The same batch is repeated with the same end, though planned at another time."""
    log = tmp_path / "checkpoint" / "offsets"
    log.mkdir(parents=True)
    stream = StreamOfBatches(table, checkpointLocation=f"file://{log.parent}")
    for at, end in ((1, 5), (2, 5)):
        (log / "0").write_text(f'v1\n{{"batchTimestampMs":{at}}}\n{{"clicks":{{"0":{end}}}}}')
        stream.run(0, [rows(range(5))])
    (log / "0").write_text('v1\n{"batchTimestampMs":2}\n{"clicks":{"0":9}}')
    with pytest.raises(CheckpointOlderThanTable, match="with other offsets than its checkpoint"):
        stream.run(0, [rows(range(9))])
    assert offsets_of(table) == list(range(5))
    assert len(parquet_files(table)) == 1


def test_two_queries_share_a_table_when_told_so(table: Path) -> None:
    StreamOfBatches(table).run(0, [rows(range(5))])
    StreamOfBatches(table, OTHER_QUERY, otherQueries="append").run(0, [rows(range(5, 9))])
    assert offsets_of(table) == list(range(9))


def test_first_batches_of_two_queries_at_the_same_time_are_both_written(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wants to be the first query of the table: one comes second, and looks again."""
    write_deltalake(table, pa.Table.from_batches([rows(range(2))]))
    ours = StreamOfBatches(table, otherQueries="append")
    others = StreamOfBatches(table, OTHER_QUERY, otherQueries="append")
    writer = ours.writer()
    message = ours.task(writer, 0, [rows(range(2, 5))])
    turns = iter([rows(range(5, 9))])

    def interrupted(path: str) -> Any:
        found = delta_table.open_table(path)
        for each in turns:
            others.run(0, [each])
        return found

    monkeypatch.setattr(lake, "open_table", interrupted)
    writer.commit([message], 0)
    assert offsets_of(table) == list(range(9))


def test_batch_writes_append_or_replace(table: Path) -> None:
    for overwrite, offsets in ((False, range(5)), (False, range(5, 8)), (True, range(2))):
        chosen = table_options({"path": str(table)}, ARCHIVE, overwrite=overwrite)
        writer = BatchTableWriter(chosen)
        writer.commit([writer.write(iter([rows(offsets)]))])
        expected = list(range(8)) if offsets == range(5, 8) else list(offsets)
        assert offsets_of(table) == expected


def test_a_batch_write_with_a_name_happens_once(table: Path) -> None:
    for name in ("first half", "second half", "first half"):
        offsets = range(5) if name == "first half" else range(5, 9)
        chosen = table_options({"path": str(table), "onceAs": name}, ARCHIVE, overwrite=False)
        writer = BatchTableWriter(chosen)
        message = writer.write(iter([rows(offsets)]))
        writer.commit([message])
        writer.abort([message])  # whatever Spark makes of it, what the table has stays
    assert offsets_of(table) == list(range(9))
    assert len(parquet_files(table)) == 2
    StreamOfBatches(table).run(0, [rows(range(9, 12))])
    assert offsets_of(table) == list(range(12))


def test_replacing_a_table_may_change_its_columns_but_not_its_partitions(table: Path) -> None:
    StreamOfBatches(table).run(0, [rows(range(5))])
    schema = StructType().add("value", StringType())
    chosen = table_options({"path": str(table)}, schema, overwrite=True)
    writer = BatchTableWriter(chosen)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"value": ["new"]})]))])
    assert DeltaTable(table).to_pyarrow_table().to_pylist() == [{"value": "new"}]
    with pytest.raises(InvalidConfig, match="is partitioned by nothing"):
        table_options({"path": str(table), "partitionBy": "topic"}, ARCHIVE, overwrite=True)


def test_in_complete_mode_each_batch_replaces_the_table_once(table: Path) -> None:
    for batch, offsets in ((0, range(3)), (1, range(5)), (1, range(9))):
        chosen = table_options({"path": str(table)}, ARCHIVE, overwrite=True)
        stream, writer = StreamOfBatches(table), StreamTableWriter(chosen)
        writer.commit([stream.task(writer, batch, [rows(offsets)])], batch)
    assert offsets_of(table) == list(range(5))


def test_an_empty_batch_makes_no_version(table: Path) -> None:
    stream = StreamOfBatches(table)
    stream.run(0, [rows(range(5))])
    stream.run(1, [])
    assert DeltaTable(table).version() == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "relative"}, "must be an absolute path"),
        ({"path": "s3://bucket/t"}, "must be an absolute path"),
        ({"partitionBy": "colour"}, "partitionBy: 'colour' is not one of key, value"),
        ({"partitionBy": "value"}, "partitionBy: 'value' is binary"),
        ({"otherQueries": "maybe"}, "is not refuse or append"),
        ({"onceAs": " "}, "onceAs is empty"),
        ({"partitionby2": "x"}, "unknown option 'partitionby2'"),
        ({"topic": "t"}, "'topic' is not for this side"),
        ({"kafka.bootstrap.servers": "h:1"}, "has no meaning for a table"),
    ],
)
def test_wrong_options_are_refused_by_name(table: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        table_options({"path": str(table), **given}, ARCHIVE, overwrite=False)


def test_a_stream_cannot_be_named_once(table: Path) -> None:
    with pytest.raises(InvalidConfig, match="onceAs is for batch writes"):
        table_options({"path": str(table), "onceAs": "x"}, ARCHIVE, overwrite=False, streaming=True)


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (StructType().add("value", BinaryType()), {}, "column 'key' is missing here and binary in"),
        (
            StructType([*ARCHIVE.fields]).add("price", DoubleType()),
            {},
            "column 'price' is double here and missing in",
        ),
        (ARCHIVE, {"partitionBy": "topic"}, "is partitioned by nothing"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_before_anything_is_written(
    table: Path, schema: StructType, options: dict[str, str], said: str
) -> None:
    StreamOfBatches(table).run(0, [rows(range(5))])
    with pytest.raises(InvalidConfig, match=said):
        table_options({"path": str(table), **options}, schema, overwrite=False)


def test_a_date_needs_something_to_be_made_of(table: Path) -> None:
    schema = StructType().add("value", BinaryType()).add("timestamp", StringType())
    with pytest.raises(InvalidConfig, match="needs a column 'date', or a 'timestamp'"):
        table_options({"path": str(table), "partitionBy": "date"}, schema, overwrite=False)
    chosen = table_options(
        {"path": str(table), "partitionBy": "date"},
        StructType().add("value", BinaryType()).add("timestamp", TimestampType()),
        overwrite=False,
    )
    assert chosen.schema.names == ["value", "timestamp", "date"]
