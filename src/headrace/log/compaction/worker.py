"""The compactor as a process: `python -m headrace.log.compaction.worker`.

One request as JSON on standard input, one answer as JSON on standard output: the result, or
`{"error": …}` and exit code 1. It runs at the lowest priority and imports as little as it can, so
that the broker beside it keeps its processor, its cache and its memory.
"""

import gc
import json
import os
import sys

from headrace.core.errors import HeadraceError
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import CompactionRequest
from headrace.log.real_files import RealFileSystem


def main() -> int:
    """Serve one request."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(19)
    # Millions of keys, no cycles: the collector would only walk over them again and again.
    gc.disable()
    request = CompactionRequest.from_json(sys.stdin.read())
    try:
        result = compact_log(RealFileSystem(), request)
    except (HeadraceError, OSError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(result.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
