"""Compact in a process of its own: a blocking call for a worker thread.

Two passes over a gigabyte in the broker's process would hold the interpreter lock against every
request; a process of its own costs 50 ms to start and nothing after.
"""

import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from headrace.core.errors import StorageError
from headrace.core.files import FileSystem
from headrace.log.compaction.request import CompactionRequest, CompactionResult

logger = logging.getLogger(__name__)

WORKER: Final = (sys.executable, "-P", "-m", "headrace.log.compaction.worker")


class Compactor(Protocol):
    """Whatever turns a request into `.cleaned` segments."""

    def compact(self, request: CompactionRequest) -> CompactionResult: ...

    def stop(self) -> None:
        """End what is running, soon; its `.cleaned` files may stay behind."""
        ...


class InlineCompactor:
    """Here and now, over any file system: for the simulation and for tests."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def compact(self, request: CompactionRequest) -> CompactionResult:
        # A broker leaves this to its workers and never loads it.
        from headrace.log.compaction.compactor import compact_log

        try:
            return _log_unreadable(request, compact_log(self._files, request))
        except OSError as error:
            raise StorageError(f"cannot compact {request.directory}: {error}") from error

    def stop(self) -> None:
        """Nothing runs between calls."""


class ProcessCompactor:
    """A worker process per request, one at a time; `stop` may come from another thread."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Raises `StorageError` if the worker failed or was stopped."""
        with self._lock:
            if self._stopped:
                raise StorageError("compaction was stopped")
            self._process = process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        try:
            answer = _send_request(process, request.to_json() + "\n")
        finally:
            with self._lock:
                self._process = None
        if process.returncode == 0:
            return _log_unreadable(request, CompactionResult.from_json(answer))
        reason = json.loads(answer)["error"] if answer.startswith("{") else "it died"
        raise StorageError(f"the compactor of {request.directory} failed: {reason}")

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


def _log_unreadable(request: CompactionRequest, result: CompactionResult) -> CompactionResult:
    """Log once what an operator should look into."""
    if result.batches_unreadable:
        logger.warning(
            "compaction kept batches that make no sense: directory=%s batches=%d",
            request.directory,
            result.batches_unreadable,
        )
    return result


def _send_request(process: subprocess.Popen[str], request: str) -> str:
    """Send the request, wait for the response and the end; its input is open until then."""
    assert process.stdin is not None
    assert process.stdout is not None
    answer = ""
    # A worker that died before it read everything: its exit code says so.
    with contextlib.suppress(BrokenPipeError), process:
        process.stdin.write(request)
        process.stdin.flush()
        answer = process.stdout.read()
    return answer
