"""`headrace pipeline run` as a process that is killed where it hurts most."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headrace.spark.progress.history import history_of

DEFINITION = Path(__file__).with_name("clicks.yaml")
PATIENCE_SECONDS = 120
_POLL_SECONDS = 0.002

Action = dict[str, dict[str, str]]
"""A line of a table's log: what was done, and with what."""


class PipelineProcess:
    """One run of the pipeline after the other, on the same checkpoint, table and topics."""

    def __init__(self, address: str, directory: Path, report: Path) -> None:
        self.checkpoint = directory / "checkpoint"
        self.table = directory / "table"
        self._said = directory / "pipeline.log"
        self._report = report
        self._environment = {
            **os.environ,
            "BROKER": address,
            "DEMO_DIRECTORY": str(directory),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._read: dict[Path, list[Action]] = {}

    def start(self) -> None:
        """Begin, or go on where the last run was killed."""
        command = [sys.executable, "-m", "headrace", "pipeline", "run", str(DEFINITION)]
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [*command, "--report", str(self._report)],
                env=self._environment,
                stdout=said,
                stderr=said,
                start_new_session=True,  # so that Java and its workers can be killed with it
            )

    def kill(self) -> None:
        """SIGKILL to the driver, to Java and to all workers at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Leave nothing running, whatever went wrong."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def kill_before_checkpoint(self, rows: int) -> int:
        """Kill when the table has a batch that the checkpoint has not, `rows` being there at least.

        Returns the number of that batch.
        """
        while True:
            self.wait_for(lambda: self.table_rows() >= rows)
            self._wait_for_a_batch()
            self.kill()
            batch = self.table_batch()
            if batch not in self.finished("raw"):
                return batch
            self.start()  # too late by a hair: the next one

    def _wait_for_a_batch(self) -> None:
        seen = len(self._versions())
        self.wait_for(lambda: len(self._versions()) > seen)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return as soon as it holds; give up when the pipeline has ended or nothing comes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                why = "ended" if self._process.poll() is not None else "came to a stand"
                raise SystemExit(f"the pipeline {why}:\n" + self._said.read_text()[-4_000:])
            time.sleep(_POLL_SECONDS)

    def finished(self, sink: str) -> set[int]:
        """The batches that the checkpoint of a sink calls finished."""
        commits = self.checkpoint / sink / "commits"
        return {int(each.name) for each in commits.glob("[0-9]*")} if commits.is_dir() else set()

    def reached(self, sink: str) -> dict[int, int]:
        """How far the last finished batch of a sink has read, by partition."""
        batches = self.finished(sink)
        if not batches:
            return {}
        lines = (self.checkpoint / sink / "offsets" / str(max(batches))).read_text().splitlines()
        (offsets,) = json.loads(lines[-1]).values()
        return {int(partition): end for partition, end in offsets.items()}

    def waiting(self) -> int:
        """Clicks that sinks have yet to read, by the newest batches in the report's history."""
        lags: dict[str, int] = {}
        history = history_of(self._report)
        # The first line says whose file it is.
        for line in history.read_text().splitlines()[1:] if history.exists() else ():
            batch = json.loads(line)
            lags[batch["query"]] = sum(batch["lag"].values())
        return sum(lags.values())

    def table_rows(self) -> int:
        """Rows that the table's log speaks of."""
        return sum(
            json.loads(action["add"]["stats"])["numRecords"]
            for action in self._actions()
            if "add" in action
        )

    def table_batch(self) -> int:
        """The newest batch in the table's log."""
        return max(int(action["txn"]["version"]) for action in self._actions() if "txn" in action)

    def _versions(self) -> list[Path]:
        return sorted(self.table.glob("_delta_log/*.json"))

    def _actions(self) -> list[Action]:
        for version in self._versions():
            if version not in self._read:
                self._read[version] = [json.loads(line) for line in version.open()]
        return [action for actions in self._read.values() for action in actions]
