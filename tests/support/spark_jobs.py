"""What driver processes of tests do: jobs called by name, one after another, in one session.

    python -m tests.support.spark_jobs FD '{"master": "local[2]", "settings": {...}}'

Each line of standard input is a call, `{"job": "read", "given": {...}}`; the answer to each is a
line written to the file descriptor FD. `tests.support.spark_drivers` is the other end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.session import session
from headrace.spark.sink import each_batch
from tests.support import spark_faults

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
Options = dict[str, str]


def with_process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the process that they came through."""
    for batch in batches:
        pids = pa.array([os.getpid()] * batch.num_rows, pa.int64())
        yield batch.append_column("pid", pids)


def read(spark: SparkSession, options: Options) -> list[list[int]]:
    """A batch read: [partition, offset, process] of every row."""
    rows = spark.read.format("headrace").options(**options).load().select("partition", "offset")
    told = rows.mapInArrow(with_process, "partition int, offset bigint, pid bigint")
    return [[row.partition, row.offset, row.pid] for row in told.collect()]


def write(spark: SparkSession, options: Options, count: int) -> None:
    """A batch write of numbers as text."""
    rows = spark.range(count).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("headrace").options(**options).mode("append").save()


def stream(
    spark: SparkSession,
    source: Options,
    sink: Options,
    columns: list[str],
    faulty: str = "",
    sink_format: str = "headrace",
    marker: str | None = None,
    kill_when: str | None = None,
    count_by: str | None = None,
) -> int:
    """A stream over what is there now; `faulty` is source or sink. How many batches had rows.

    With `marker`, its fault is to kill this driver; with `kill_when`, that file is, once there.
    With `count_by`, rows are counted by that column, and all counts are written each time.
    """
    if faulty:
        spark_faults.register(spark)
    if marker is not None:
        spark_faults.arm(Path(marker), driver_processes(spark))
    if kill_when is not None:
        watch = (Path(kill_when), driver_processes(spark))
        threading.Thread(target=kill_at_sight, args=watch, daemon=True).start()
    if faulty == "sink":
        sink_format = spark_faults.NAME
    rows = _rows(spark, source, faulty).selectExpr(*columns)
    if count_by is not None:
        rows = rows.groupBy(count_by).count()
    query = (
        rows.writeStream.format(sink_format)
        .outputMode("append" if count_by is None else "complete")
        .options(**sink)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for each in query.recentProgress if each["numInputRows"])


def count_values(spark: SparkSession, source: Options, sink: Options, checkpoint: str) -> None:
    """Counts in update mode, to a topic by foreachBatch."""
    counts = (
        _rows(spark, source, "")
        .groupBy("value")
        .count()
        .selectExpr("value AS key", "CAST(count AS STRING) AS value")
    )
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(each_batch(sink))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def executors(spark: SparkSession) -> int:
    """How many executors there are beside the driver."""
    status: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    return int(status.size()) - 1


def driver_processes(spark: SparkSession) -> list[int]:
    """Whom to kill so that nothing is put in order: Python, then Java, which takes others along."""
    jvm: Any = spark._jvm
    return [os.getpid(), jvm.java.lang.ProcessHandle.current().pid()]


def kill_at_sight(file: Path, pids: list[int]) -> None:
    """Kill processes as soon as a file is there; this one last."""
    while not file.exists():
        time.sleep(0.0005)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)


def _rows(spark: SparkSession, options: Options, faulty: str) -> DataFrame:
    name = spark_faults.NAME if faulty == "source" else "headrace"
    return spark.readStream.format(name).options(**options).load()


JOBS: dict[str, Callable[..., Any]] = {
    job.__name__: job for job in (read, write, stream, count_values, executors)
}


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w")
    given = json.loads(sys.argv[2])
    register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # cloudpickle
    settings = SETTINGS | given.get("settings", {})
    if given["master"].startswith("sc://"):
        settings = {}
    spark = session("headrace-tests", master=given["master"], settings=settings)
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        call = json.loads(line)
        try:
            _answer(answers, {"result": JOBS[call["job"]](spark, **call["given"])})
        except Exception as error:
            said = f"{error}\n{traceback.format_exc()}"
            _answer(answers, {"error": type(error).__name__, "said": said})
    spark.stop()


def _answer(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
