"""Rows that come too late are counted exactly, whatever leaves them out, and never silently.

Each pipeline reads rows out of order in several batches. What it shows as late must be what is in
no result: all rows, less those that the sink (and, for sessions, the state) accounts for.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.pipeline.calls import Call, with_options
from headrace.spark.pipeline.running import Run
from headrace.spark.progress import Progress
from headrace.spark.progress.history import History
from headrace.testing import Broker
from tests.integration.spark.test_pipeline_cli import Command, command
from tests.support.pipelines import PATIENCE_SECONDS, Written
from tests.support.spark_readers import send

__all__ = ["command"]

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVENT = "id int, zone int, at timestamp"
ROWS, BATCH_ROWS = 1_200, 300
WATERMARK = "30 seconds"
# The last row: later than all others by far, so that every window is over and given out.
END = START + timedelta(days=2)


def events(count: int, *, late_share: float = 0.4, seed: int = 7) -> list[bytes]:
    """Rows in the order of time, but for some that come up to 20 minutes late."""
    chosen = random.Random(seed)
    made = []
    for number in range(count):
        at = START + timedelta(seconds=number * 1200 / count)
        if chosen.random() < late_share:
            at -= timedelta(seconds=chosen.random() * 1200)
        made.append(event(number, at))
    return made


def event(number: int, at: datetime) -> bytes:
    return json.dumps({"id": number, "zone": number % 5, "at": at.isoformat()}).encode()


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    made = Written(tmp_path, broker.bootstrap_servers, topic, EVENT)
    made.source["max_rows_per_batch"] = BATCH_ROWS
    made.document["settings"] = {"spark.sql.shuffle.partitions": 1}
    return made


def window(**more: Any) -> dict[str, Any]:
    given = {"time": "at", "watermark": WATERMARK, "by": ["zone"], "agg": {"n": "count(*)"}}
    return {"window": {**given, **more}}


def run_all(spark: SparkSession, client: Client, topic: str, written: Written) -> Run:
    """The rows, and one more that ends all windows; then, by two runs, everything given out."""
    send(client, topic, [*events(ROWS), event(ROWS, END)])
    run = written.table().load().start(spark, once=True)
    assert run.wait(PATIENCE_SECONDS)
    return run


def counted_rows(written: Written) -> int:
    return sum(row["n"] for row in written.rows())


def test_fixed_windows(spark: SparkSession, client: Client, topic: str, written: Written) -> None:
    written.step(**window(size="1 minute"))
    [late] = run_all(spark, client, topic, written).late.values()
    # The last row's own window is still open.
    assert (late.rows, late.late) == (ROWS + 1, ROWS - counted_rows(written))
    assert late.late > ROWS // 20
    assert (late.partly, late.is_exact) == (0, True)
    share = f"{100 * late.late / late.rows:.1f} %"
    assert str(late) == f"{late.late:,} of 1,201 rows came too late ({share})"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "step",
    [
        window(size="1 minute"),
        window(size="2 minutes", slide="1 minute"),
        window(session="10 seconds"),
        {"dedup": {"by": ["id"], "time": "at", "watermark": WATERMARK}},
    ],
    ids=["fixed", "sliding", "session", "dedup"],
)
def test_two_hundred_thousand_rows(
    spark: SparkSession, client: Client, topic: str, written: Written, step: dict[str, Any]
) -> None:
    written.source["max_rows_per_batch"] = 20_000
    send(client, topic, [*events(200_000), event(200_000, END)])
    run = written.step(**step).table().load().start(spark, once=True)
    assert run.wait(600)
    [late] = run.late.values()
    if "dedup" in step:
        assert late.late == 200_001 - len(written.rows())
    elif "slide" in step["window"]:
        assert 2 * late.late + late.partly == 400_000 - counted_rows(written)
    else:
        assert late.late == 200_000 - counted_rows(written)
    assert late.late > 20_000
    assert late.is_exact


def test_sliding_windows_lose_rows_wholly_and_in_part(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    written.step(**window(size="2 minutes", slide="1 minute"))
    [late] = run_all(spark, client, topic, written).late.values()
    assert 2 * ROWS - counted_rows(written) == 2 * late.late + late.partly
    assert late.late > ROWS // 20
    assert late.partly > 0
    assert late.is_exact


def test_sessions(spark: SparkSession, client: Client, topic: str, written: Written) -> None:
    written.step(**window(session="10 seconds"))
    [late] = run_all(spark, client, topic, written).late.values()
    assert (late.late, late.is_exact) == (ROWS - counted_rows(written), True)
    assert late.late > ROWS // 20


def test_dedup_after_a_selection_and_a_function(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    """Steps in between, which choose columns of their own, do not lose the watermark.

    The function gives out one column more than it declares, which Spark leaves out.
    """
    (written.directory / "steps.py").write_text(
        "def passed(batches):\n"
        "    for batch in batches:\n"
        "        assert batch.schema.names == ['id', 'moment', 'zone'], batch.schema.names\n"
        "        yield batch\n"
    )
    written.step(filter="zone < 9").step(select=["id", "at AS moment", "zone"])
    written.step(python={"function": "steps.py:passed", "schema": "id int, moment timestamp"})
    written.step(dedup={"by": ["id"], "time": "moment", "watermark": WATERMARK})
    [late] = run_all(spark, client, topic, written).late.values()
    found = written.rows()
    assert (late.late, late.is_exact) == (ROWS + 1 - len(found), True)
    assert late.late > ROWS // 20
    assert set(found[0]) == {"id", "moment"}


STATE = """
from collections.abc import Iterator
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Counted(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"n": [sum(len(each) for each in rows)]})

    def close(self):
        pass
"""


def test_state_with_event_time(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    (written.directory / "state.py").write_text(STATE)
    given = {"function": "state.py:Counted", "by": ["zone"], "schema": "n int"}
    written.step(stateful={**given, "timers": "event-time", "time": "at", "watermark": WATERMARK})
    [late] = run_all(spark, client, topic, written).late.values()
    assert (late.late, late.is_exact) == (ROWS + 1 - counted_rows(written), True)
    assert late.late > ROWS // 20


def test_a_query_in_sql_before_a_window_leaves_a_lower_bound_and_says_so(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    written.step(sql="SELECT id, zone, at FROM input").step(**window(size="1 minute"))
    [late] = run_all(spark, client, topic, written).late.values()
    assert not late.is_exact
    assert late.late <= ROWS - counted_rows(written)
    assert str(late).startswith("at least ")


def replace_option(name: str, value: str) -> Callable[..., Any]:
    def replaced(chain: Call, given: dict[str, str]) -> Call:
        return with_options(chain, {**given, name: value} if name in given else given)

    return replaced


def test_where_the_checkpoint_cannot_be_read_the_number_is_at_least_sparks(
    spark: SparkSession,
    client: Client,
    topic: str,
    written: Written,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a checkpoint in an object store, which the planner's machine does not have."""
    moved = replace_option("watermarkCheckpoint", "hdfs://elsewhere/checkpoint")
    monkeypatch.setattr("headrace.spark.pipeline.compiling.with_options", moved)
    written.step(dedup={"by": ["id"], "time": "at", "watermark": WATERMARK})
    [late] = run_all(spark, client, topic, written).late.values()
    # Of dedup Spark's own number is right, but nobody can know that of all steps.
    assert (late.late, late.is_exact) == (ROWS + 1 - len(written.rows()), False)


def test_late_rows_are_told_and_more_than_allowed_is_exit_code_4(
    command: Command, client: Client, topic: str, written: Written
) -> None:
    """In the line of each batch, in the report, at the end; and the rows in time are written."""
    written.step(**window(size="1 minute")).table()
    written.document["on_late"] = {"fail": {"at_most": "99 %"}}
    send(client, topic, [*events(ROWS), event(ROWS, END)])
    report = written.directory / "report.html"
    code, _, err = command("run", str(written.save()), "--once", "--report", str(report))
    lost = ROWS - counted_rows(written)
    last = err.splitlines()[-1]
    assert last == f"headrace: {lost:,} of 1,201 rows came too late ({100 * lost / 1201:.1f} %)"
    assert code == 0
    assert "; late " in err
    assert f"<td>{lost:,} (" in report.read_text()
    # The same run, with nothing new but rows that are late, and none allowed.
    written.document["on_late"] = "fail"
    send(client, topic, events(100))
    code, _, err = command("run", str(written.save()), "--once", "--quiet")
    assert code == 4
    assert "100 of 100 rows came too late (100.0 %); none may (on_late)" in err
    assert ROWS - counted_rows(written) == lost


CUT = """
import time
from pathlib import Path


def cut(batches):
    '''Stops in the middle of the third batch, for as long as nobody has been killed there.'''
    marker = Path(__file__).with_name("marker")
    for batch in batches:
        if not marker.exists() and max(batch["id"].to_pylist(), default=0) >= {stop_at}:
            marker.write_text("in the middle of a batch")
            time.sleep(600)
        yield batch
"""


@pytest.mark.timeout(300)
def test_after_a_kill_in_the_middle_of_a_batch_no_row_is_counted_twice_or_not_at_all(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    (written.directory / "cut.py").write_text(CUT.format(stop_at=2 * BATCH_ROWS + 50))
    written.step(python={"function": "cut.py:cut", "schema": EVENT}).step(**window(size="1 minute"))
    send(client, topic, [*events(ROWS), event(ROWS, END)])
    report = written.table().directory / "report.html"
    command_line = [sys.executable, "-m", "headrace", "pipeline", "run", str(written.save())]
    quick = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    more = ["--once", "--quiet", "--master", "local[2]", "--set", quick, "--report", str(report)]
    killed = subprocess.Popen([*command_line, *more], start_new_session=True)
    marker = written.directory / "marker"
    try:
        while not marker.exists() and killed.poll() is None:
            time.sleep(0.05)
        # Two batches with rows have ended, and their lines have been written.
        while len(_with_rows(report)) < 2 and killed.poll() is None:
            time.sleep(0.05)
        assert killed.poll() is None
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    before = _with_rows(report)
    assert sum(each.rows for each in before) == 2 * BATCH_ROWS
    run = written.load().start(spark, once=True)
    assert run.wait(PATIENCE_SECONDS)
    [late] = run.late.values()
    shown = late.late + sum(each.late or 0 for each in before)
    assert shown == ROWS - counted_rows(written)
    assert shown > ROWS // 20
    assert late.is_exact
    assert all(each.late_is_exact for each in before)


def _with_rows(report: Path) -> list[Progress]:
    path = report.with_name("report.report.jsonl")
    return [each for each in History(path).batches if each.rows] if path.exists() else []
