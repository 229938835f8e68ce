"""Rows that come too late are counted exactly, whatever leaves them out, and never silently.

Each pipeline reads rows out of order in several batches. What it shows as late must be what is in
no result: all rows, less those that the sink (and, for sessions, the state) accounts for.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.pipeline.calls import Call, with_options
from headrace.spark.pipeline.run import Run
from headrace.spark.progress import Progress, Watching, watch
from headrace.spark.progress.history import History
from headrace.testing import Broker
from tests.integration.spark.test_pipeline_cli import Command, command
from tests.support.config_effects import eventually
from tests.support.pipelines import PATIENCE_SECONDS, Written
from tests.support.spark_readers import send

__all__ = ["command"]

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVENT = "id int, zone int, at timestamp"
ROWS, BATCH_ROWS = 1_200, 300
WATERMARK = "30 seconds"
# By a watermark: the last and first moment in time for a row, a window of minutes, and a session.
EDGES = [
    timedelta(seconds=seconds, microseconds=microseconds)
    for seconds in (0, -10)
    for microseconds in (-1, 0, 1)
]
# The last row: later than all others by far, so that every window is over and given out.
END = START + timedelta(days=2)


def events(
    count: int, *, batch_rows: int = BATCH_ROWS, late_share: float = 0.4, seed: int = 7
) -> list[bytes]:
    """Rows in the order of time, but for some that come up to 20 minutes late.

    Each batch ends by the row that sets a watermark of a whole minute, and begins by rows that lie
    on either side of the one that it goes by.
    """
    chosen = random.Random(seed)
    times = []
    for number in range(count):
        at = START + timedelta(seconds=number * 1200 / count)
        if chosen.random() < late_share:
            at -= timedelta(seconds=chosen.random() * 1200)
        times.append(at)
    for first in range(0, count, batch_rows):
        minutes = (first + batch_rows) * 20 // count + 1
        times[min(first + batch_rows, count) - 1] = START + timedelta(minutes=minutes, seconds=30)
        if first >= 2 * batch_rows:  # what a batch brought is the watermark of the next but one
            watermark = times[first - batch_rows - 1] - timedelta(seconds=30)
            times[first : first + len(EDGES)] = [watermark + edge for edge in EDGES]
    return [event(number, at) for number, at in enumerate(times)]


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


KINDS = {
    "fixed": window(size="1 minute"),
    "sliding": window(size="2 minutes", slide="1 minute"),
    "session": window(session="10 seconds"),
    "dedup": {"dedup": {"by": ["id"], "time": "at", "watermark": WATERMARK}},
}


def run_all(spark: SparkSession, client: Client, topic: str, written: Written) -> Run:
    """The rows, and one more that ends all windows; then, by two runs, everything given out."""
    send(client, topic, [*events(ROWS), event(ROWS, END)])
    run = written.table().load().start(spark, once=True)
    assert run.wait(PATIENCE_SECONDS)
    return run


def counted_rows(written: Written, table: str = "table") -> int:
    return sum(row["n"] for row in written.rows(table))


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
    KINDS.values(),
    ids=KINDS,
)
def test_two_hundred_thousand_rows(
    spark: SparkSession, client: Client, topic: str, written: Written, step: dict[str, Any]
) -> None:
    written.source["max_rows_per_batch"] = 20_000
    send(client, topic, [*events(200_000, batch_rows=20_000), event(200_000, END)])
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
    monkeypatch.setattr("headrace.spark.pipeline.compiler.with_options", moved)
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
    # The same run, with nothing new but rows that are late, and fewer or none allowed.
    for allowed, said in (
        ("fail", "none may (on_late)"),
        ({"fail": {"at_most": "5 %"}}, "at most 5.0 % may (on_late)"),
    ):
        written.document["on_late"] = allowed
        send(client, topic, events(100))
        code, _, err = command("run", str(written.save()), "--once", "--quiet")
        assert code == 4
        assert f"100 of 100 rows came too late (100.0 %); {said}" in err
        assert ROWS - counted_rows(written) == lost


def test_late_rows_are_told_though_the_query_fails(
    command: Command, client: Client, topic: str, written: Written
) -> None:
    written.step(filter="id < 9000 OR raise_error('no luck') IS NULL")
    written.step(**window(size="1 minute")).table()
    ended = [*events(ROWS)[: 2 * BATCH_ROWS], *events(BATCH_ROWS, seed=8)]
    send(client, topic, [*ended, event(9999, END)])
    code, _, err = command("run", str(written.save()), "--once", "--quiet")
    assert code == 1
    assert "no luck" in err
    [late] = re.findall(r"headrace: (\d+) of 900 rows came too late", err)
    assert int(late) > ROWS // 20


CUT = """
import time
from pathlib import Path


def cut(name):
    def batches_until_cut(batches):
        '''Stops in the middle of the third batch, if nobody has been killed there before.'''
        marker = Path(__file__).with_name(f"marker-{name}")
        for batch in batches:
            if not marker.exists() and max(batch["id"].to_pylist(), default=0) >= {stop_at}:
                yield batch.slice(0, batch.num_rows // 2)
                marker.write_text("in the middle of a batch")
                time.sleep(600)
            yield batch

    return batches_until_cut


"""


@pytest.mark.timeout(600)
def test_after_a_kill_in_the_middle_of_a_batch_no_row_is_counted_twice_or_not_at_all(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    """All kinds at once, each in its own query, killed when all are in the middle of a batch."""
    cut = CUT.replace("{stop_at}", str(2 * BATCH_ROWS + 50))
    cut += "".join(f"{name} = cut({name!r})\n" for name in KINDS)
    (written.directory / "cut.py").write_text(cut)
    for name, step in KINDS.items():
        written.table(name)
        passed = {"python": {"function": f"cut.py:{name}", "schema": EVENT}}
        written.document["sinks"][-1]["steps"] = [passed, step]
    send(client, topic, [*events(ROWS), event(ROWS, END)])
    report = written.directory / "report.html"
    command_line = [sys.executable, "-m", "headrace", "pipeline", "run", str(written.save())]
    quick = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Room for the tasks that are stuck, and for those of the other queries.
    more = ["--once", "--quiet", "--master", "local[8]", "--set", quick, "--report", str(report)]
    killed = subprocess.Popen([*command_line, *more], start_new_session=True)
    try:
        # Each query is within its third batch with rows, and the lines of two have been written.
        while killed.poll() is None and not all(
            (written.directory / f"marker-{name}").exists() and len(_with_rows(report, name)) == 2
            for name in KINDS
        ):
            time.sleep(0.05)
        assert killed.poll() is None
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    with watch(spark, terminal=False, metrics="0") as watching:
        run = written.load().start(spark, once=True)
        assert run.wait(PATIENCE_SECONDS)
        counted = {
            f'headrace_pipeline_late_rows_total{{query="{query}"}} {run.late[query].late}'
            for query in map("clicks-{}".format, KINDS)
        }
        # Spark tells each listener in its own time.
        eventually(lambda: counted <= scraped(watching), "the metric tells what was counted")
    for name in KINDS:
        before, late = _with_rows(report, name), run.late[f"clicks-{name}"]
        assert [each.rows for each in before] == 2 * [BATCH_ROWS]
        assert late.is_exact
        assert all(each.late_is_exact for each in before)
        shown = late.late + sum(each.late or 0 for each in before)
        partly = late.partly + sum(each.late_partly for each in before)
        windows = 2 if name == "sliding" else 1  # that each row is in
        if name == "dedup":
            lost = ROWS + 1 - len(written.rows(name))
        else:  # the last row's own window or session is still open
            lost = windows * ROWS - counted_rows(written, name)
        assert (name, windows * shown + partly) == (name, lost)
        assert shown > ROWS // 20


def scraped(watching: Watching) -> set[str]:
    with urlopen(f"http://{watching.metrics_address}/metrics") as answer:
        return set(answer.read().decode().splitlines())


def _with_rows(report: Path, sink: str) -> list[Progress]:
    path = report.with_name("report.report.jsonl")
    batches = History(path).batches if path.exists() else []
    return [each for each in batches if each.rows and each.query == f"clicks-{sink}"]
