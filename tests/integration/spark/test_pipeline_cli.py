"""`headrace pipeline` in the session that the tests share; in the long form in its own process."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cli.main import main
from headrace.client import Client
from headrace.spark.pipeline.run import Run
from headrace.testing import Broker
from tests.support.pipelines import Written, clicks
from tests.support.spark_readers import send

QUICK = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STOPPED_SECONDS = 120

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    return Written(tmp_path, broker.bootstrap_servers, topic).table()


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command in this process and session: exit code, stdout, stderr."""
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", *arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def test_run_once_does_what_is_there_and_draws_it(
    command: Command, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(3)))
    report = written.directory / "report.html"
    code, _, err = command("run", str(written.save()), "--once", "--report", str(report))
    assert code == 0
    assert "headrace: running clicks-table" in err
    assert re.search(r"clicks-table: batch \d+; 3 rows", err)
    assert report.read_text().startswith("<!doctype html>")
    assert len(written.rows()) == 3


def test_a_failed_query_is_told_with_exit_code_1(
    command: Command, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(3)))
    written.step(select=["raise_error('no luck') AS x"])
    code, _, err = command("run", str(written.save()), "--once", "--quiet")
    assert code == 1
    assert "headrace: clicks-table: " in err
    assert "no luck" in err


def test_sigterm_stops_a_run_with_exit_code_0(
    command: Command, client: Client, topic: str, written: Written, spark: SparkSession
) -> None:
    send(client, topic, clicks(range(3)))
    over = threading.Event()

    def stop_once_there_is_a_table() -> None:
        while not (written.directory / "table" / "_delta_log").exists() and not over.wait(0.05):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    stopper = threading.Thread(target=stop_once_there_is_a_table)
    stopper.start()
    try:
        code, _, err = command("run", str(written.save()), "--quiet")
    finally:
        over.set()
        stopper.join()
    assert code == 0
    assert "headrace: stopping, after the batch that is under way" in err
    assert not spark.streams.active
    assert signal.getsignal(signal.SIGTERM) == before


def test_check_tells_problems_with_their_lines_and_exit_code_1(
    command: Command, written: Written
) -> None:
    path = str(written.save())
    assert command("check", path)[:2] == (0, f"{path}: clicks is fine, with 1 sink\n")
    path = str(written.step(filter="nothing > 0").save())
    code, out, _ = command("check", path)
    assert code == 1
    line = Path(path).read_text().splitlines().index("- filter: nothing > 0") + 1
    assert out.startswith(f"{path}:{line}:3: [UNRESOLVED_COLUMN")


def test_mistakes_in_the_file_are_told_by_every_command(
    command: Command, written: Written, tmp_path: Path
) -> None:
    written.document["sink"] = written.document.pop("sinks")
    path = str(written.save())
    line = Path(path).read_text().splitlines().index("sink:") + 1
    for name in ("run", "check", "plan", "backfill"):
        code, _, err = command(name, path)
        assert code == 1
        assert f"{path}:{line}:1: the pipeline has no 'sink': did you mean 'sinks'?" in err
    code, _, err = command("run", str(tmp_path / "nowhere.yaml"))
    assert (code, "nowhere.yaml: No such file" in err) == (1, True)


def test_plan_prints_a_program_that_does_what_run_does(
    command: Command, client: Client, topic: str, written: Written, spark: SparkSession
) -> None:
    send(client, topic, clicks(range(4)))
    written.step(filter="id > 1").step(sql="SELECT id * 2 AS double FROM input")
    code, out, _ = command("plan", str(written.save()), "--once")
    assert code == 0
    exec(compile(out, "plan", "exec"), {})
    assert sorted(row["double"] for row in written.rows()) == [4, 6]
    # Under the same checkpoint the pipeline itself finds nothing left to do.
    written.run(spark)
    assert len(written.rows()) == 2


def test_list_shows_last_batches_and_lag(
    command: Command, client: Client, topic: str, written: Written, spark: SparkSession
) -> None:
    written.source["commit_group"] = f"{topic}-group"
    path = written.save()
    [row] = json.loads(command("list", str(path.parent), "-o", "json")[1])
    assert (row["sink"], row["last_batch"], row["lag"]) == ("table", None, None)
    send(client, topic, clicks(range(4)))
    written.run(spark)
    send(client, topic, clicks(range(3)))
    [row] = json.loads(command("list", str(path), "-o", "json")[1])
    assert (row["source"], row["lag"]) == (topic, 3)
    assert row["last_batch"] >= 0
    assert row["last_batch_at"]
    (path.parent / "broken.yml").write_text("name: x\n")
    code, out, err = command("list", str(path.parent))
    assert code == 1
    assert "broken.yml:1:1: the pipeline needs 'source'" in err
    assert "clicks" in out


def test_backfill_says_what_it_did(
    command: Command, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(4)))
    arguments = [str(written.save()), "--from-offsets", json.dumps({topic: {"0": 1}})]
    code, out, _ = command("backfill", *arguments, "--to", "latest")
    assert (code, out) == (0, f"{topic}-0: offsets 1 to 4\ntable: wrote 3 rows\n")
    code, out, _ = command("backfill", *arguments, "--to", "latest", "-o", "json")
    assert json.loads(out)["sinks"] == [{"sink": "table", "rows": None, "written_before": True}]
    assert command("backfill", *arguments, "--from", "earliest")[0] == 2


def test_a_dry_run_of_a_backfill_tells_what_it_would_do_and_writes_nothing(
    command: Command, client: Client, topic: str, written: Written, spark: SparkSession
) -> None:
    send(client, topic, clicks(range(4)))
    path = str(written.save())
    code, out, _ = command("backfill", path, "--dry-run")
    told = f"{topic}-0: offsets 0 to 4\ntable: would get 4 records\nnothing was read or written\n"
    assert (code, out) == (0, told)
    assert not (written.directory / "table").exists()
    written.run(spark)
    code, _, err = command("backfill", path, "--from", "earliest", "--dry-run")
    assert (code, "the pipeline itself has written offsets of this range" in err) == (1, True)
    code, out, _ = command("backfill", path, "--again", "--dry-run", "-o", "json")
    [sink] = json.loads(out)["sinks"]
    assert sink == {"sink": "table", "written_before": False, "written_by_pipeline": True}
    assert len(written.rows()) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "shuffle=3"], "'shuffle' is no setting of Spark"),
        (["--set", "spark.x"], "expected KEY=VALUE"),
    ],
)
def test_settings_that_are_none_are_wrong_usage(
    command: Command, written: Written, arguments: list[str], said: str
) -> None:
    code, _, err = command("run", str(written.save()), *arguments)
    assert (code, said in err) == (2, True)


def test_a_session_that_does_not_start_is_told(
    command: Command, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("An error occurred while calling None.X.\n: java.lang.Odd: no master")

    monkeypatch.setattr("headrace.spark.session.session", refuse)
    code, _, err = command("run", str(written.save()), "--master", "spark://nowhere:1")
    assert (code, err) == (1, "headrace: Spark did not start: java.lang.Odd: no master\n")


def test_a_session_with_a_wrong_setting_is_told_at_its_line(
    command: Command, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a session is there, and fails at whatever it is asked first."""

    class Wrong:
        def __getattr__(self, name: str) -> object:
            if name == "stop":
                return lambda: None
            raise RuntimeError("spark.sql.shuffle.partitions should be int, but was many")

    monkeypatch.setattr("headrace.spark.session.session", lambda *_, **__: Wrong())
    written.document["settings"] = {"spark.sql.shuffle.partitions": "many"}
    path = written.save()
    code, _, err = command("run", str(path), "--once")
    line = path.read_text().splitlines().index("  spark.sql.shuffle.partitions: many") + 1
    assert (code, f"{path}:{line}:3: settings: spark.sql" in err) == (1, True)


def test_an_interrupt_goes_to_the_command_and_not_into_a_call_of_sparks(
    command: Command,
    written: Written,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = []

    def begun(*_: object, **__: object) -> SparkSession:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark takes it for itself
        return spark

    def check(*_: object) -> list[object]:
        seen.append(signal.getsignal(signal.SIGINT))
        logging.error("Exception while sending command.")  # as py4j says it
        return []

    monkeypatch.setattr("headrace.spark.session.session", begun)
    monkeypatch.setattr("headrace.spark.pipeline.Pipeline.check", check)
    try:
        assert command("check", str(written.save()))[0] == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.default_int_handler]
    assert not caplog.records


def test_an_interrupt_while_spark_starts_waits_for_it(
    command: Command, written: Written, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java that loses its Python while it starts stays behind for ever."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = []

    def start(*_: object, **__: object) -> SparkSession:
        os.kill(os.getpid(), signal.SIGINT)
        started.append(True)
        return spark

    monkeypatch.setattr("headrace.spark.session.session", start)
    try:
        code, _, err = command("check", str(written.save()))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, started) == (130, [True])
    assert "Traceback" not in err


def test_a_stop_that_ends_spark_too_is_no_failure(
    command: Command, client: Client, topic: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all processes of a service get the signal: Spark is gone when it is to stop."""
    send(client, topic, clicks(range(3)))
    stop = Run.stop

    def too_late(self: Run, patience: float = 0) -> None:
        stop(self, patience)
        raise ConnectionRefusedError("Connection refused")

    def ask(*_: object, **__: object) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    monkeypatch.setattr(Run, "stop", too_late)
    monkeypatch.setattr(Run, "wait", ask)
    code, _, err = command("run", str(written.save()), "--quiet")
    assert code == 0
    assert "headrace: stopped; Spark had ended before" in err


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("to_all", [False, True], ids=["to-one", "to-its-group"])
def test_a_pipeline_in_a_process_of_its_own_ends_cleanly_on_sigterm(
    client: Client, topic: str, written: Written, to_all: bool
) -> None:
    """The whole way: command line, session, signal; the next run has nothing to do again.

    Service managers send the signal to all processes of a service, Spark's included.
    """
    send(client, topic, clicks(range(3)))
    command_line = [sys.executable, "-m", "headrace", "pipeline", "run", str(written.save())]
    settings = ["--master", "local[2]", "--set", "spark.driver.memory=1g", "--set", QUICK]
    said = ""
    with subprocess.Popen(
        [*command_line, *settings], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said += line
                if "; 3 rows" in line:
                    (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
            assert process.wait(STOPPED_SECONDS) == 0, said
        finally:
            process.kill()
    assert "headrace: stopping" in said
    assert len(written.rows()) == 3
