"""`headrace pipeline` where Spark is not wanted, or not there."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.cli.pipeline.run import stop_on_signals
from tests.unit.spark.pipeline.test_spec_reader import SMALL


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *arguments])
    return int(ended.value.code or 0)


def test_help_loads_neither_spark_nor_yaml() -> None:
    program = (
        "import sys; from headrace.cli.main import build; build(); "
        "sys.exit(bool({'pyspark', 'pyarrow', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("command", ["run", "check", "plan", "list", "backfill"])
def test_without_spark_it_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "pyspark" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert exit_code(command, "clicks.yaml") == 1
    said = capsys.readouterr().err
    assert "pipelines need the package pyspark" in said
    assert "hint: pip install '.[spark]'" in said


@pytest.mark.parametrize("command", ["run", "backfill"])
def test_a_broker_that_does_not_answer_is_told_before_spark_is_started(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clicks.yaml"
    path.write_text(SMALL)
    assert exit_code(command, str(path), "--bootstrap-servers", "127.0.0.1:1") == 3
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_signal_while_spark_starts_is_answered_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.asked.is_set()
        assert capfd.readouterr().err == "headrace: stopping as soon as Spark has started\n"
        stop.started()
        signal.raise_signal(signal.SIGTERM)
        assert capfd.readouterr().err == ""
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_plan_is_printed_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clicks.yaml"
    path.write_text(SMALL)
    assert exit_code("plan", str(path), "-b", "broker:9092", "--set", "spark.a=b") == 0
    assert 'spark = session("clicks", settings={"spark.a": "b"})' in capsys.readouterr().out


def test_a_list_of_pipelines_needs_no_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SMALL.replace("[clicks]", "[clicks], commit_group: group")
    (tmp_path / "clicks.yaml").write_text(text)
    assert exit_code("list", str(tmp_path), "--bootstrap-servers", "127.0.0.1:1") == 0
    assert "none" in capsys.readouterr().out
