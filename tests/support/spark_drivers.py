"""Spark drivers in processes of their own: asked to do jobs, stopped, or found dead."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.processes import process_tree

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS = 180
CALL_SECONDS = 240
STOP_SECONDS = 60


class DriverDied(Exception):
    """The driver ended before it answered; `code` is what Popen says of it."""

    def __init__(self, code: int | None, said: str) -> None:
        super().__init__(f"the driver ended with {code}:\n{said}")
        self.code = code


class JobFailed(Exception):
    """The job raised; the text is what it said."""


class Driver:
    """One driver; `with Driver("local[2]", tmp_path / "driver.out") as driver: ...`."""

    def __init__(self, master: str, log_path: Path, settings: dict[str, str] | None = None) -> None:
        self._request = {"master": master, "settings": settings or {}}
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._read = b""

    def __enter__(self) -> Driver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait for its session."""
        self._answers, theirs = os.pipe()
        arguments = [str(theirs), json.dumps(self._request)]
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark_jobs", *arguments],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
                start_new_session=True,
            )
        os.close(theirs)
        try:
            self._answer(START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def call(self, job: str, **given: Any) -> Any:
        """Have a job done and wait for its result."""
        self.begin(job, **given)
        return self.result()

    def begin(self, job: str, **given: Any) -> None:
        """Have a job begun; `result` waits for it."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, "given": given}).encode() + b"\n")
        self._process.stdin.flush()

    def result(self, seconds: float = CALL_SECONDS) -> Any:
        """What the job that was begun came to."""
        answer = self._answer(seconds)
        if "error" in answer:
            raise JobFailed(f"{answer['error']}: {answer['said']}")
        return answer["result"]

    def stop(self) -> None:
        """Let it end by itself; killed when it does not."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL for it and all that it started."""
        if self._process is None:
            return
        for pid in process_tree(self._process.pid) if self._process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        os.close(self._answers)
        self._process = None

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError(f"no answer in {seconds} s:\n{self.log_tail()}")
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                raise DriverDied(self._process.wait(STOP_SECONDS), self.log_tail())
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def log_tail(self, lines: int = 40) -> str:
        """The last lines that it wrote, which JVM and Python share."""
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-lines:])
