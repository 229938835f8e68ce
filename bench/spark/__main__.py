"""`python -m bench.spark`: the rows that Spark has, with the official connector beside ours.

The connector's jars and Apache Kafka are used if they are to be had; without them the rows that
compare stay open, and the table says so.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.spark import decoder, reads, topics, writes
from bench.spark.reads import Side
from bench.spark.rows import OFFICIAL, OFFICIAL_KAFKA, OURS, ROWS, Values, judge
from tests.support import tools
from tests.support.brokers import ApacheKafka, HeadraceProcess
from tests.support.tools import ToolOutOfReach

PARTS = ("decoder", "batch", "stream", "json", "tables", "write", "small", "memory")
_OFFICIAL_FORMAT = "kafka"


def main(
    rows: Annotated[int, typer.Option(help="Rows of the large topics.")] = 4_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds of each measure.")] = 3,
    gigabytes: Annotated[float, typer.Option(help="How much the memory row reads.")] = 5.0,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(PARTS)}.")] = None,
) -> None:
    """Measure and print the rows."""
    parts = set(only or PARTS)
    if unknown := parts - set(PARTS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    console = Console()
    values = Values(console.print)
    if "decoder" in parts:
        decoder.measure(values, rounds)
    if parts - {"decoder"}:
        with ExitStack() as stack:
            _measure_reads(stack, parts, rows, rounds, gigabytes, values)
    show(console, values)


def _measure_reads(
    stack: ExitStack, parts: set[str], rows: int, rounds: int, gigabytes: float, values: Values
) -> None:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    jars = _jars()
    sides = _sides(stack, scratch, official=bool(jars))
    spark = stack.enter_context(_session(scratch, jars))
    ours = sides[0]
    for servers in dict.fromkeys(side.servers for side in sides):
        if parts & {"batch", "stream", "tables", "memory"}:
            topics.fill(servers, "plain", rows, 2, topics.plain)
        if "json" in parts:
            topics.fill(servers, "clicks", rows, 2, topics.click)
    if "batch" in parts:
        reads.measure_batch(spark, sides, "plain", rows, rounds, values)
    if "stream" in parts:
        reads.measure_stream(spark, sides, "plain", rows, rounds, values)
    if "json" in parts:
        reads.measure_json(spark, sides, "clicks", rows, rounds, values)
    if "tables" in parts:
        writes.measure_tables(spark, sides, "plain", rows, rounds, values)
    if "write" in parts:
        writes.measure_write(spark, sides, rows, rounds, values)
    if "small" in parts:
        topics.fill(ours.servers, "small", 180_000, 2, topics.plain)
        topics.fill(ours.servers, "small-clicks", 30_000, 2, topics.click)
        topics.fill(ours.servers, "many", 180_000 // 64 * 64, 64, topics.plain)
        reads.measure_small(spark, ours, "small", "small-clicks", "many", values)
    if "memory" in parts:
        reads.measure_memory(spark, ours, "plain", rows, gigabytes, values)


def _jars() -> list[str]:
    try:
        return [str(each) for each in tools.spark_connector_jars()]
    except ToolOutOfReach as error:
        print(f"without the official connector: {error}", file=sys.stderr)
        return []


def _sides(stack: ExitStack, scratch: Path, *, official: bool) -> list[Side]:
    headrace = HeadraceProcess(scratch / "headrace", {"log.flush.policy": "os"})
    headrace.start()
    stack.callback(headrace.stop)
    sides = [Side(OURS, "headrace", headrace.bootstrap_servers)]
    if official:
        sides.append(Side(OFFICIAL, _OFFICIAL_FORMAT, headrace.bootstrap_servers))
        try:
            kafka = ApacheKafka(scratch / "kafka", jvm=("-Xms512M", "-Xmx512M"))
        except ToolOutOfReach as error:
            print(f"without Apache Kafka: {error}", file=sys.stderr)
            return sides
        kafka.start()
        stack.callback(kafka.stop)
        sides.append(Side(OFFICIAL_KAFKA, _OFFICIAL_FORMAT, kafka.bootstrap_servers))
    return sides


@contextmanager
def _session(scratch: Path, jars: list[str]) -> Iterator[SparkSession]:
    tools.java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("headrace-bench")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.local.dir", str(scratch / "local"))
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def show(console: Console, values: Values) -> None:
    """The table: every row with what was measured on each side, and its bar."""
    table = Table(title=f"Spark, load average {os.getloadavg()[0]:.1f}")
    for name in ("row", "ours", "official", "official on Kafka", "value", "bar", "met"):
        table.add_column(name)
    for verdict in judge(values, ROWS):
        row, unit = verdict.row, "x" if verdict.row.against else verdict.row.unit
        table.add_row(
            row.title,
            values.span(row.measure),
            values.span(row.measure, OFFICIAL),
            values.span(row.measure, OFFICIAL_KAFKA),
            "" if verdict.value is None else f"{verdict.value:,.2f} {unit}",
            f"{'>=' if row.at_least else '<='} {row.bar:,g} {unit}",
            {True: "yes", False: "no", None: "not measured"}[verdict.met],
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
