"""A process that is told of batches as a driver would be, and then waits to be killed.

python -m tests.support.spark_progress_feeder REPORT BATCHES RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.spark.progress import Watching
from tests.support.spark_progress import told


def main() -> None:
    report, batches, run = sys.argv[1:]
    # Time stands still, so that the report is written once, for the first batch.
    watching = Watching(report=Path(report), clock=lambda: 0.0)
    for number in range(int(batches)):
        watching.progressed(told(batchId=number, runId=run))
    print("fed", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
