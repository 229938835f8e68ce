"""A worker's modules are left out of what its collector looks at, once, and only in a task."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from pyspark import TaskContext
from headrace.spark import workers

at_first = gc.get_freeze_count()  # from 3.12 on the interpreter freezes some of its own
workers.freeze_imports()
assert gc.get_freeze_count() <= at_first, "not a worker"
TaskContext._taskContext = TaskContext()
workers.freeze_imports()
frozen = gc.get_freeze_count()
assert frozen > at_first + 10_000, frozen
kept = [[] for _ in range(100_000)]
workers.freeze_imports()
assert gc.get_freeze_count() <= frozen, "a second task"
"""


def test_modules_of_a_worker_are_frozen_once_and_nowhere_else() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)
