"""What Spark's Python workers do between tasks, made cheaper.

A worker collects garbage after every task, all of it, and looks at every object of every module
that it has imported: some 30 ms each time, thrice what a small batch takes to read. Modules stay
as long as their process does, so they are put where the collector does not look.
"""

import gc

from pyspark import TaskContext

_frozen = False


def freeze_imports() -> None:
    """Call this in a task once its modules are imported; only the first one does anything."""
    global _frozen
    if not _frozen and TaskContext.get() is not None:
        _frozen = True
        gc.collect()
        gc.freeze()
