"""The compactor as a process: `python -m headrace.log.compaction.worker`.

One request as a line of JSON on standard input, one response as JSON on standard output: the
result, or `{"error": …}` and exit code 1. It runs at the lowest priority and imports as little as
it can, so that the broker beside it keeps its processor, its cache and its memory.

It must not outlive its broker: a restarted one would start another over the same files. So it ends
when its standard input does, and takes a lock, because on a busy machine that may take a moment.
"""

import gc
import json
import os
import sys
import threading
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import CompactionRequest
from headrace.log.real_files import RealFileSystem

LOCK: Final = ".cleaner.lock"
"""In the data directory, beside the partitions."""


def main() -> int:
    """Serve one request."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(19)
    # Millions of keys, no cycles: the collector would only walk over them again and again.
    gc.disable()
    request = CompactionRequest.from_json(sys.stdin.readline())
    threading.Thread(target=_exit_with_broker, daemon=True).start()
    files = RealFileSystem()
    try:
        lock = files.lock(os.path.join(os.path.dirname(request.directory), LOCK))
        result = compact_log(files, request)
        lock.release()
    except (HeadraceError, OSError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(result.to_json())
    return 0


def _exit_with_broker() -> None:
    """Standard input stays open for as long as the broker lives."""
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
