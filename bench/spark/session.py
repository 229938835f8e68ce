"""The session that is measured, one for all sides, and what its processes cost."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.spark.rows import Values
from headrace.spark.session import session
from tests.support import tools
from tests.support.processes import cpu_seconds, memory, process_tree
from tests.support.tools import ToolOutOfReach

DRIVER_MEMORY = "2g"
_PLANNER = b"python_streaming_source_runner"
SETTINGS = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
MASTER = "local[2]"
_TESTS = "tests/integration/spark"
_START_SECONDS_MAX = 120


def connector_jars() -> list[str]:
    """The jars of the official connector; none, with a word, if they are not to be had."""
    try:
        return [str(each) for each in tools.spark_connector_jars()]
    except ToolOutOfReach as error:
        print(f"without the official connector: {error}", file=sys.stderr)
        return []


@contextmanager
def started(scratch: Path, jars: list[str]) -> Iterator[SparkSession]:
    """The session, as `headrace.spark.session` makes it, with the connector's jars beside."""
    tools.java()
    settings = {**SETTINGS, "spark.local.dir": str(scratch / "local")}
    if jars:
        settings["spark.jars"] = ",".join(jars)
    spark = session("headrace-bench", master=MASTER, settings=settings)
    try:
        yield spark
    except BaseException:
        # Broken off in the middle of a call, the line to Java cannot be used any more.
        _java(spark).kill()
        raise
    spark.stop()


def _java(spark: SparkSession) -> subprocess.Popen[bytes]:
    """The driver's Java, which is the parent of the Python workers."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def _plans(pid: int) -> bool:
    try:
        return _PLANNER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False


class Costs:
    """CPU time of the driver and its workers, and of the broker that serves a side."""

    def __init__(self, spark: SparkSession, values: Values) -> None:
        self._driver_pid = _java(spark).pid
        self._values = values

    def memory_bytes(self) -> int:
        """What the driver's Python, its Java and its workers hold now."""
        own = Path("/proc/self/statm").read_text().split()[1]
        return int(own) * resource.getpagesize() + memory(self._driver_pid).total

    def planner_bytes(self) -> int:
        """What the planners of streams hold now: Python processes that live as long as those."""
        return sum(memory(each).total for each in process_tree(self._driver_pid) if _plans(each))

    @contextmanager
    def noted(self, measure: str, side: str, broker_pid: int, rows: int) -> Iterator[None]:
        """Note what the rows cost while the block runs."""
        before = self._spent(broker_pid)
        yield
        for what, earlier, later in zip(
            ("Spark", "broker"), before, self._spent(broker_pid), strict=True
        ):
            cost = (later - earlier) / rows * 1e6
            self._values.add(f"{measure}: CPU s of {what} per million rows", cost, side)

    def _spent(self, broker_pid: int) -> tuple[float, float]:
        return cpu_seconds(self._driver_pid), cpu_seconds(broker_pid)


def measure_start(values: Values, rounds: int) -> None:
    """From nothing to the first job, with the settings of the tests, in a process of its own."""
    tools.java()
    for _ in range(rounds):
        begun = time.monotonic()
        subprocess.run(
            [sys.executable, "-c", _START],
            check=True,
            timeout=_START_SECONDS_MAX,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        values.add("session start", time.monotonic() - begun)


_START = """
from headrace.spark.session import session
from tests.integration.spark.conftest import QUICK_DRIVER
spark = session("start", master="local[2]", settings={
    "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK_DRIVER})
assert spark.range(10).count() == 10
import os
os._exit(0)
"""


def measure_tests(values: Values) -> None:
    """The tests of the shared session, from start to end."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "pytest", "-q", _TESTS], check=True)
    values.add("shared tests", time.monotonic() - begun)
