"""Second chapter: Spark counts a stream of clicks, is killed twice, and counts right."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headrace.spark.delta_table import dataset
from scripts.demo.broker import BrokerProcess
from scripts.demo.clicks import CLICKS_PER_SECOND, PAGES, TOPIC, Clicks, Published
from scripts.demo.spark_pipeline import PipelineProcess
from scripts.demo.stream import PARTITIONS, Topic, create_topic

COUNTS = "clicks.by_page"
CLICKS = 240_000

Counts = dict[tuple[str, str], int]
"""Clicks by window and page."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the generator published, and what the pipeline made of it."""

    published: Published
    in_table: Counter[tuple[int, int]]
    counted: Counts
    updates: int
    batch_killed: int
    stopped_with: int
    seconds: float

    @property
    def missing(self) -> int:
        """Clicks that the table has not."""
        return len(self.published.places - self.in_table.keys())

    @property
    def doubled(self) -> int:
        """Rows of the table beyond one for each click."""
        return self.in_table.total() - len(self.in_table)

    @property
    def wrong(self) -> int:
        """Windows of a page whose count is not the generator's own."""
        told, true = self.counted, self.published.counts
        return sum(told.get(key, 0) != true[key] for key in told.keys() | true.keys())

    @property
    def right(self) -> bool:
        published = self.published
        everything = not published.failed and len(published.places) == CLICKS
        nothing_else = len(self.in_table) == CLICKS and not self.stopped_with
        return everything and nothing_else and not (self.missing or self.doubled or self.wrong)


def tell(console: Console, broker: BrokerProcess, directory: Path, report: Path) -> Outcome:
    """Run the chapter; raises if the pipeline does not come to its end."""
    create_topic(broker.address, TOPIC)
    create_topic(broker.address, COUNTS, {"cleanup.policy": "compact"})
    pipeline = PipelineProcess(broker.address, directory, report)
    clicks = Clicks(broker.address, CLICKS, console)
    began = time.perf_counter()
    console.print(f"a Spark pipeline starts; {CLICKS_PER_SECOND:,} clicks/s come in meanwhile")
    clicks.start()
    try:
        with Topic(broker.address, COUNTS) as counts:
            batch = _with_two_kills(console, pipeline, counts)
            clicks.join()
            ends = _ends(clicks.published)
            pipeline.wait_for(lambda: pipeline.reached("raw") == pipeline.reached("counts") == ends)
            pipeline.wait_for(lambda: pipeline.waiting() == 0)  # so that the picture shows it
            stopped_with = pipeline.stop()
            seconds = time.perf_counter() - began
            counted, updates = _newest(counts)
    finally:
        pipeline.close()
        clicks.stop()
    rows = dataset(str(pipeline.table)).to_table(columns=["partition", "offset"])
    places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return Outcome(
        clicks.published, Counter(places), counted, updates, batch, stopped_with, seconds
    )


def _with_two_kills(console: Console, pipeline: PipelineProcess, counts: Topic) -> int:
    """Start it three times; returns the batch that was in the table and not in the checkpoint."""
    pipeline.start()
    batch = pipeline.kill_before_checkpoint(CLICKS // 10)
    console.print(
        f"[bold red]SIGKILL[/] of driver, Java and workers: the table has batch {batch}, "
        "the checkpoint does not"
    )
    pipeline.start()
    pipeline.wait_for(lambda: sum(pipeline.reached("counts").values()) >= CLICKS // 2)
    before = counts.ends()
    pipeline.wait_for(lambda: counts.ends() != before)
    pipeline.kill()
    console.print("[bold red]SIGKILL[/] again, while counts are being written to their topic")
    pipeline.start()
    return batch


def _ends(published: Published) -> dict[int, int]:
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in published.places:
        ends[partition] = max(ends[partition], offset + 1)
    return ends


def _newest(topic: Topic) -> tuple[Counts, int]:
    """The newest count of each key, and how many were written in all."""
    newest: Counts = {}
    updates = 0
    for messages in topic.read():
        for message in messages:
            row = json.loads(message.value() or b"{}")
            newest[row["window"], row["page"]] = row["n"]
            updates += 1
    return newest, updates


def show(console: Console, outcome: Outcome) -> None:
    """Counts per page beside the generator's own, and what became of every click."""
    table = Table(title="clicks of people per page, over all windows of 5 s", title_justify="left")
    for column in ("page", "counted by Spark", "published", "windows", "windows that differ"):
        table.add_column(column, justify="left" if column == "page" else "right")
    told, true = outcome.counted, outcome.published.counts
    for page in PAGES:
        keys = sorted(key for key in told.keys() | true.keys() if key[1] == page)
        differ = sum(told.get(key, 0) != true[key] for key in keys)
        sums = sum(told.get(key, 0) for key in keys), sum(true[key] for key in keys)
        table.add_row(page, f"{sums[0]:,}", f"{sums[1]:,}", f"{len(keys):,}", f"{differ:,}")
    console.print(table)
    console.print(
        f"clicks acknowledged {len(outcome.published.places):,}, rows in the Delta table "
        f"{outcome.in_table.total():,}: {outcome.missing:,} missing, {outcome.doubled:,} twice; "
        f"{outcome.updates:,} updates of {len(told):,} counts in topic {COUNTS}"
    )
