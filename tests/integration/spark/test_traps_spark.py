"""The traps of Spark's Python sources and sinks that this project fell into once, each with a test.

| trap | where it is tested |
|---|---|
| 1 a list column of nothing but NULL takes quadratic time from the JVM to Python | below; `test_sinks`, `test_source`, `test_readers_batch` |
| 2 `abort` is also called when `commit` raised after its effect landed | `test_lake`, `test_sinks` |
| 3 `abort` is not told what tasks had finished | `test_lake`, `test_sinks` |
| 4 a source hears of a finished batch one batch late, and never of the last | below; `test_source`, `test_readers_stream` |
| 5 the planner of a stream sees neither `pyFiles` nor the driver's `sys.path` | below |
| 6 types cannot be parsed inside `schema()` | `test_source`, `test_options` |
| 7 a task costs 30 ms whatever it reads | `test_source`, `test_readers_stream`, `test_offsets` |
| 8 `binary_slice` of pyarrow needs a stop | below |
| 9 checkpoints are slow on local disks; the setting that helps is internal | below |
| 10 streams that start at once tear a map that every batch is sent with | below |

Every trap has an entry in `TRAPS`, and a test that is named there exists.
"""  # noqa: E501

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import headrace
from headrace.client import Client
from headrace.spark import session
from headrace.spark.planner_environment import _NAMES, define_planner_variables
from headrace.testing import Broker
from tests.integration.spark.conftest import Options
from tests.integration.spark.test_sinks import archived, finish, from_start, places, stream
from tests.support import spark_faults
from tests.support.pipelines import Written
from tests.support.spark_faults import Compared, compare
from tests.support.spark_readers import batch_reader, numbered, send, stream_reader

_TESTS = Path(__file__).resolve().parents[2]
_SPARK, _UNIT = "integration/spark", "unit/spark"
_HERE = f"{_SPARK}/test_traps_spark.py"
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"

TRAPS: dict[int, list[str]] = {
    1: [
        f"{_HERE}::test_trap_1_headers_are_there_only_if_asked_for_and_never_null",
        f"{_SPARK}/test_sinks.py::test_trap_1_rows_without_headers_travel_as_such",
        f"{_SPARK}/test_source.py::test_headers_without_any_header_go_through_python_at_full_speed",
        f"{_SPARK}/test_readers_batch.py::test_headers_are_empty_lists_and_never_null",
    ],
    2: [
        f"{_UNIT}/test_lake.py::test_trap_2_abort_after_a_commit_that_landed_removes_nothing",
        f"{_SPARK}/test_sinks.py"
        "::test_trap_2_and_3_a_table_has_each_row_once_wherever_a_batch_fails",
    ],
    3: [
        f"{_UNIT}/test_lake.py::test_trap_3_abort_finds_what_tasks_left_though_nobody_lists_it",
        f"{_SPARK}/test_sinks.py"
        "::test_trap_2_and_3_a_table_has_each_row_once_wherever_a_batch_fails",
    ],
    4: [
        f"{_HERE}::test_trap_4_a_commit_that_comes_late_changes_nothing",
        f"{_SPARK}/test_source.py::test_lag_of_a_stream_is_that_of_its_group_to_the_last_batch",
        f"{_SPARK}/test_readers_stream.py"
        "::test_finished_offsets_are_published_to_a_group_so_that_lag_can_be_seen",
    ],
    5: [
        f"{_HERE}::test_trap_5_planner_and_tasks_run_the_python_of_the_driver",
        f"{_HERE}::test_trap_5_a_session_names_this_python_unless_another_was_named",
    ],
    6: [
        f"{_SPARK}/test_source.py::test_typed_columns_need_no_session_to_be_parsed",
        f"{_UNIT}/test_options.py::test_typed_values_have_a_type_and_columns_for_what_was_bad",
    ],
    7: [
        f"{_SPARK}/test_source.py::test_many_rows_of_many_partitions_come_once_each",
        f"{_SPARK}/test_readers_stream.py::test_small_partitions_of_a_stream_share_tasks",
        f"{_UNIT}/test_offsets.py::test_many_small_partitions_are_packed_into_few_tasks",
    ],
    8: [f"{_HERE}::test_trap_8_nothing_is_sliced_without_a_stop"],
    9: [
        f"{_HERE}::test_trap_9_the_quick_way_to_write_checkpoints_is_off_unless_asked_for",
        f"{_HERE}::test_trap_9_a_checkpoint_written_the_quick_way_is_read_the_usual_way",
    ],
    10: [
        f"{_HERE}::test_trap_10_a_stream_finds_the_variables_of_its_planner_in_place",
        f"{_HERE}::test_trap_10_a_pipeline_puts_them_in_place_whoever_made_the_session",
    ],
}


@pytest.mark.parametrize("trap", range(1, 11))
def test_every_trap_has_a_test_that_exists(trap: int) -> None:
    for named in TRAPS[trap]:
        file, _, name = named.partition("::")
        tree = ast.parse((_TESTS / file).read_text())
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, named


def test_trap_1_headers_are_there_only_if_asked_for_and_never_null(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(3))
    for asked, wanted in (("false", None), ("true", [[], [], []])):
        reader = batch_reader(to(subscribe=topic, includeHeaders=asked))
        [rows] = [batch for task in reader.partitions() for batch in reader.read(task)]
        found = rows.column("headers").to_pylist() if "headers" in rows.schema.names else None
        assert found == wanted


def test_trap_4_a_commit_that_comes_late_changes_nothing(
    client: Client, topic: str, to: Options
) -> None:
    """Offsets are published from the start of the next batch, which is the end of the last."""
    group = f"late-{topic}"
    send(client, topic, numbered(6))
    start: Any = {topic: {"0": 0}}
    reader = stream_reader(
        to(
            subscribe=topic,
            startingOffsets=json.dumps(start),
            commitGroup=group,
            maxOffsetsPerTrigger=2,
        )
    )
    limit = reader.getDefaultReadLimit()
    assert reader.initialOffset() == start
    for _ in range(3):
        end = reader.latestOffset(start, limit)
        reader.commit(start)  # one batch late
        start = end
    assert [each.offset for each in client.admin.committed_offsets(group).values()] == [4]
    assert reader.latestOffset(start, limit) == start
    assert [each.offset for each in client.admin.committed_offsets(group).values()] == [6]
    reader.stop()


class Whereabouts(DataSource):
    """Tells which Python plans and which reads, and whether it has the package."""

    @classmethod
    def name(cls) -> str:
        return "whereabouts"

    def schema(self) -> str:
        return "python string, package string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _Here()


class _Here(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return {}

    def latestOffset(self, start: Any, limit: Any) -> dict[str, str]:  # noqa: ARG002, N802
        return _here()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        here = _here()
        yield (here["python"], here["package"])


def _here() -> dict[str, str]:
    import sys as there

    import headrace as package

    return {"python": there.executable, "package": str(package.__file__)}


def test_trap_5_planner_and_tasks_run_the_python_of_the_driver(
    spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    """Neither is told of files that a job brings along, so the package must be installed there."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # cloudpickle
    spark.dataSource.register(Whereabouts)
    path = str(tmp_path / "told")
    rows = spark.readStream.format("whereabouts").load()
    writer = rows.writeStream.format("json").option("path", path).trigger(once=True)
    query = writer.option("checkpointLocation", checkpoint).start()
    query.awaitTermination(120)
    query.stop()
    here = {"python": sys.executable, "package": str(headrace.__file__)}
    planner = (Path(checkpoint) / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(planner) == here
    [task] = spark.read.json(path).collect()
    assert task.asDict() == here


def test_trap_5_a_session_names_this_python_unless_another_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "find_java", lambda: None)
    for named, wanted in ((None, sys.executable), ("/opt/env/bin/python", "/opt/env/bin/python")):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        if named is not None:
            monkeypatch.setenv("PYSPARK_PYTHON", named)
        session.prepare()
        assert os.environ["PYSPARK_PYTHON"] == wanted


def unstopped(source: str) -> list[int]:
    """Lines where `binary_slice` is called without its third argument."""
    calls = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call))
    return [
        call.lineno
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", "")) == "binary_slice"
        and len(call.args) < 3
        and "stop" not in {word.arg for word in call.keywords}
    ]


def test_trap_8_nothing_is_sliced_without_a_stop() -> None:
    values = pa.array([b"abcdefgh", None, b""], pa.binary())
    assert pc.binary_slice(values, 5, sys.maxsize).to_pylist() == [b"fgh", None, b""]
    assert unstopped("pc.binary_slice(a, 5)\npc.binary_slice(a, 5, 9)\n") == [1]
    root = Path(headrace.__file__).parent / "spark"
    found = {str(file): unstopped(file.read_text()) for file in root.rglob("*.py")}
    assert not {file: lines for file, lines in found.items() if lines}


def test_trap_9_the_quick_way_to_write_checkpoints_is_off_unless_asked_for() -> None:
    assert CHECKPOINTS not in {**session.DEFAULT_SETTINGS, **session.LOCAL_SETTINGS}


def test_trap_9_a_checkpoint_written_the_quick_way_is_read_the_usual_way(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    quick = (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
    for first, setting in ((0, quick), (50, None)):
        send(client, topic, numbered(50, first))
        if setting is not None:
            spark.conf.set(CHECKPOINTS, setting)
        try:
            writer = stream(spark, from_start(to, topic)).writeStream.format("headrace")
            writer = writer.option("checkpointLocation", checkpoint)
            finish(writer.option("path", str(tmp_path / "table")))
        finally:
            spark.conf.unset(CHECKPOINTS)
    assert compare(places(client, topic), archived(tmp_path / "table")) == Compared(0, 0, 0)


def planner_variables(spark: SparkSession, name: str) -> Any:
    formats = spark._jsparkSession.sessionState().dataSourceManager()
    return formats.lookupDataSource(name).dataSourceCls().envVars()


def test_trap_10_a_stream_finds_the_variables_of_its_planner_in_place(
    spark: SparkSession, client: Client, topic: str, to: Options, tmp_path: Path
) -> None:
    """Spark adds to a map without a lock, each time that a stream starts, and sends it about."""
    send(client, topic, numbered(5))
    added = []
    for number, settles in enumerate((False, True)):
        spark_faults.register(spark)  # a new map
        if settles:
            define_planner_variables(spark, spark_faults.NAME)
        before = set(planner_variables(spark, spark_faults.NAME).keySet())
        rows = spark.readStream.format(spark_faults.NAME).options(**from_start(to, topic))
        rows.options(**spark_faults.fault_options("reading", tmp_path / "never"))
        noop = rows.load().writeStream.format("noop")
        finish(noop.option("checkpointLocation", str(tmp_path / str(number))))
        added.append(set(planner_variables(spark, spark_faults.NAME).keySet()) - before)
    assert added == [set(_NAMES), set()]


def test_trap_10_a_pipeline_puts_them_in_place_whoever_made_the_session(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def settle(session: SparkSession) -> None:
        seen.append([query.name for query in session.streams.active])

    monkeypatch.setattr("headrace.spark.pipeline.run.define_planner_variables", settle)
    Written(tmp_path, broker.bootstrap_servers, topic).table().table("second").run(spark)
    assert seen == [[]], "once, and before any query has started"
