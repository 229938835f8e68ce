"""The story of the demo: one broker, two chapters, a verdict."""

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from headrace.spark.progress.history import history_of
from scripts.demo import analytics, durability
from scripts.demo.broker import BrokerProcess

REPORT = Path("build/demo/throughput-and-lag.html")
_HISTORY = history_of(REPORT)


def main() -> None:
    """Exit 0 only if everything that is claimed was seen."""
    console = Console(soft_wrap=True, highlight=False)
    started = time.perf_counter()
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    for old in (REPORT, _HISTORY):  # a report goes on where the last run ended
        old.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-demo-") as directory,
        BrokerProcess(Path(directory) / "data") as broker,
    ):
        console.print(
            f"broker on [bold]{broker.address}[/], ready after {broker.start_seconds:.2f} s"
        )
        kept = durability.tell(console, broker)
        durability.show(console, kept)
        counted = analytics.tell(console, broker, Path(directory), REPORT)
        analytics.show(console, counted)
        broker.stop()
    console.print(f"throughput and lag over time: [bold]{REPORT}[/]")
    seconds = time.perf_counter() - started
    if not (kept.kept and kept.taken_over and counted.right and REPORT.is_file()):
        console.print("[bold red]the promise was broken[/]: see the tables")
        sys.exit(1)
    verdict = "nothing acknowledged was lost, nothing was left undone, every window is right"
    console.print(f"[bold green]{verdict}[/] ({seconds:.0f} s in all)")


main()
