"""Delta tables behind `format("headrace")`, driven by hand as Spark would drive it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidConfig
from headrace.spark.archive import verify
from headrace.spark.delta_table import TableUnreadable, dataset, open_table
from headrace.spark.format import HeadraceFormat
from headrace.spark.table_source import Files, TableReader
from tests.support.spark_tables import StreamOfBatches, rows

CITIES = ["New York", "01", "a/b", "é%20", "x=y"]


def read(path: Path, **options: str) -> pa.Table:
    """All rows, each task by a reader that went through pickle."""
    table = HeadraceFormat({"path": str(path), **options})
    schema = table.schema()
    assert isinstance(schema, StructType)
    reader = table.reader(schema)
    tasks = reader.partitions()
    shipped: TableReader = pickle.loads(pickle.dumps(reader))
    batches = [batch for task in pickle.loads(pickle.dumps(tasks)) for batch in shipped.read(task)]
    return pa.Table.from_batches(batches)


def test_a_table_of_our_own_is_read_with_the_values_of_its_directories(tmp_path: Path) -> None:
    path = tmp_path / "our table"
    stream = StreamOfBatches(path, partitionBy="topic,date")
    stream.run(0, [rows([n], topic=name) for n, name in enumerate([*CITIES, ""])])
    found = read(path).sort_by("offset").to_pylist()
    assert [each["topic"] for each in found] == [*CITIES, None]
    assert isinstance(found[0]["date"], date)
    assert found == DeltaTable(path).to_pyarrow_table().sort_by("offset").to_pylist()


def test_columns_that_came_later_are_null_in_files_from_before(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    write_deltalake(tmp_path / "t", pa.table({"a": [2], "b": ["x"]}), mode="append",
                    schema_mode="merge")  # fmt: skip
    assert read(tmp_path / "t").sort_by("a").to_pydict() == {"a": [1, 2], "b": [None, "x"]}


def test_rows_that_were_deleted_are_not_read(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1, 2, 3]}))
    DeltaTable(tmp_path / "t").delete("a = 2")
    assert sorted(read(tmp_path / "t")["a"].to_pylist()) == [1, 3]


def test_small_files_share_a_task_and_a_table_may_be_empty(tmp_path: Path) -> None:
    for number in range(5):
        write_deltalake(tmp_path / "t", pa.table({"a": [number]}), mode="append")
    reader = TableReader({"path": str(tmp_path / "t")}, StructType().add("a", "long"))
    [task] = reader.partitions()
    assert isinstance(task, Files)
    assert len(task.files) == 5
    DeltaTable(tmp_path / "t").delete()
    assert list(reader.read(reader.partitions()[0])) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/no/such/table"}, "there is no Delta table at /no/such/table"),
        ({"path": "relative"}, "must be an absolute path"),
        ({"path": "/a", "subscribe": "clicks"}, "'subscribe' is not for this side"),
        ({"path": "/a", "versionAsOf": "1"}, "unknown option 'versionAsOf'"),
    ],
)
def test_what_cannot_be_read_is_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        HeadraceFormat(options).schema()


def test_a_table_is_no_stream() -> None:
    with pytest.raises(InvalidConfig, match=r"a Delta table is read as a batch, by spark\.read"):
        HeadraceFormat({"path": "/a"}).streamReader(StructType())


def test_a_file_that_is_gone_is_told_by_its_name(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    [file] = (tmp_path / "t").glob("*.parquet")
    file.unlink()
    with pytest.raises(InvalidConfig, match="is not there: is the path one that driver and"):
        read(tmp_path / "t")


# -- without Spark


def test_arrow_does_not_call_back_into_python_for_files_of_a_table(tmp_path: Path) -> None:
    """Threads that let go of Python's objects while the interpreter ends abort the process."""
    stream = StreamOfBatches(tmp_path / "t")
    stream.run(0, [rows([0, 1])])
    assert _calls_python(DeltaTable(tmp_path / "t").to_pyarrow_dataset())
    assert not _calls_python(dataset(str(tmp_path / "t")))
    assert [each.rows for each in verify(tmp_path / "t")] == [2]


def _calls_python(found: Any) -> bool:
    return str(found.filesystem.type_name).startswith("py::")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_twenty_processes_that_read_a_table_end_as_they_should(tmp_path: Path) -> None:
    for number in range(5):
        write_deltalake(tmp_path / "t", pa.table({"a": [number] * 1000}), mode="append")
    program = (
        "from headrace.spark.delta_table import dataset\n"
        f"print(dataset({str(tmp_path / 't')!r}).to_table().num_rows, flush=True)\n"
    )
    ends = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        for _ in range(20)
    ]
    assert {(each.returncode, each.stdout) for each in ends} == {(0, b"5000\n")}


def test_what_is_no_table_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    log = tmp_path / "cut" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{")
    for name in ("file", "cut"):
        with pytest.raises(
            TableUnreadable, match=rf"^the table .*{name} cannot be read: .+"
        ) as told:
            open_table(str(tmp_path / name))
        assert "\n" not in str(told.value)
        assert "\x1b" not in str(told.value)
    assert (tmp_path / "file").read_text() == "mine"
    assert open_table(str(tmp_path / "nowhere")) is None
