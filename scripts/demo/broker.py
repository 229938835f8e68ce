"""`headrace serve` as a process that can be killed and started again."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from headrace.testing.broker import free_port

STOP_SECONDS_MAX = 15.0


class BrokerProcess:
    """One broker on a free loopback port."""

    def __init__(self, data_dir: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.start_seconds = 0.0
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Return when the broker has said that it is ready."""
        began = time.perf_counter()
        serve = [sys.executable, "-m", "headrace", "serve", "--log-level", "warning"]
        options = ["--data-dir", str(self._data_dir), "--listen", self.address]
        # The demo must not wait for the six seconds that a member may be silent by default.
        options += ["--set", "group.min.session.timeout.ms=1000", "--http", "off", "--text", "off"]
        self._process = subprocess.Popen(
            [*serve, *options], stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stderr is not None
        self._await_ready(self._process.stderr)
        self.start_seconds = time.perf_counter() - began

    def _await_ready(self, said: IO[str]) -> None:
        lines = []
        for line in said:
            if re.search(r"ready on .*" + re.escape(self.address), line):
                return
            lines.append(line)
        raise SystemExit("the broker did not start:\n" + "".join(lines))

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._forget()

    def stop(self) -> None:
        """SIGTERM, and wait for a clean end."""
        if self._process is not None:
            self._process.terminate()
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
