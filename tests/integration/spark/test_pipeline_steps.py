"""Every step over real records: what comes out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.testing import Broker
from tests.support.pipelines import Written, clicks
from tests.support.spark_readers import send

FUNCTIONS = """
import pyarrow as pa
import pyarrow.compute as pc
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

FACTOR = 2.0

def doubled(batches):
    for batch in batches:
        prices = pc.multiply(batch.column("price"), FACTOR)
        yield pa.RecordBatch.from_arrays([batch.column("id"), prices], ["id", "price"])

class Total(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total double")

    def handleInputRows(self, key, rows, timerValues):
        total = self.total.get()[0] if self.total.exists() else 0.0
        total += sum(float(part["price"].sum()) for part in rows)
        self.total.update((total,))
        yield pd.DataFrame({"item": [key[0]], "total": [total]})

    def close(self):
        pass
"""


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    (tmp_path / "steps.py").write_text(FUNCTIONS)
    return Written(tmp_path, broker.bootstrap_servers, topic)


def values(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_filter_select_and_sql_follow_each_other(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(6)))
    written.step(filter="price > 1").step(select=["id", "price * 2 AS double_price", "offset"])
    written.step(sql="SELECT id + 1 AS next, double_price FROM input WHERE id < 4")
    written.step(sql="SELECT next, double_price FROM input WHERE next > 3")
    written.table().run(spark)
    assert values(written.rows(), "next", "double_price") == [(4, 6.0)]
    assert not spark.catalog.tableExists("input")


def test_windows_count_and_are_given_out_when_they_are_over(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, [*clicks(range(9)), *clicks([60], minute=9)])
    window = {"time": "at", "size": "2 minutes", "slide": "1 minute", "watermark": "1 minute"}
    written.step(window={**window, "by": ["item"], "agg": {"n": "count(*)", "sum": "sum(price)"}})
    written.step(select=["item", "window.start AS start", "n", "sum"]).table().run(spark)
    # Two windows hold each click, and those of minute 9 are not over.
    assert values(written.rows(), "item", "n", "sum") == [
        ("item-0", 3, 4.0),
        ("item-0", 3, 4.0),
        ("item-1", 3, 7.0),
        ("item-1", 3, 7.0),
        ("item-2", 3, 5.0),
        ("item-2", 3, 5.0),
    ]


def test_sessions_end_after_a_gap(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, [*clicks([0, 3, 6]), *clicks([9], minute=2), *clicks([30], minute=30)])
    window = {"time": "at", "session": "1 minute", "watermark": "1 minute", "by": ["item"]}
    written.step(window={**window, "agg": {"n": "count(*)"}})
    written.step(select=["window.start AS start", "n"]).table().run(spark)
    found = [(row["start"].isoformat()[11:19], row["n"]) for row in written.rows()]
    assert sorted(found) == [("00:00:00", 3), ("00:02:09", 1)]


def test_dedup_keeps_the_first_of_each_key(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1, 2, 1, 3, 2]))
    written.source["max_rows_per_batch"] = 2  # across batches, not only within one
    written.step(dedup={"by": ["id"], "time": "at", "watermark": "10 minutes"})
    written.table().run(spark)
    assert values(written.rows(), "id", "offset") == [(1, 0), (2, 1), (3, 3)]


def test_tables_of_every_format_are_joined(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    """One query with a join for each: rows without a match stay."""
    send(client, topic, clicks(range(3)))
    rows = [("item-0", "cup"), ("item-1", "jug")]
    kinds = ("csv", "parquet", "json", "delta")
    for kind in kinds:
        path = str(written.directory / kind)
        if kind == "delta":
            table = pa.table({"item": [row[0] for row in rows], kind: [row[1] for row in rows]})
            write_deltalake(path, table, partition_by=[kind])
        else:
            frame = spark.createDataFrame(rows, f"item string, {kind} string")
            frame.coalesce(1).write.format(kind).option("header", True).save(path)
        options = {"options": {"header": True}} if kind == "csv" else {}
        written.step(join={"table": {"format": kind, "path": kind, **options}, "on": ["item"]})
    written.table().run(spark)
    found = values(written.rows(), "id", *kinds)
    assert found == [(0, *["cup"] * 4), (1, *["jug"] * 4), (2, *[None] * 4)]


def test_a_join_may_leave_rows_out(
    spark: SparkSession, written: Written, client: Client, topic: str
) -> None:
    send(client, topic, clicks(range(6)))
    for how, ids in (("inner", [0, 1, 2, 3]), ("semi", [1, 2, 3, 4, 5]), ("anti", [3])):
        lines = [f'{{"id": {number}, "by_{how}": true}}\n' for number in ids]
        (written.directory / f"{how}.json").write_text("".join(lines))
        table = {"format": "json", "path": f"{how}.json"}
        written.step(join={"table": table, "on": ["id"], "how": how})
    written.table().run(spark)
    assert values(written.rows(), "id", "by_inner") == [(1, True), (2, True)]
    assert not {"by_semi", "by_anti"} & written.rows()[0].keys()


def test_a_function_of_a_file_goes_over_arrow_batches(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1, 2]))
    step = {"function": "steps.py:doubled", "schema": "id int, price double"}
    written.step(python=step).table().run(spark)
    assert values(written.rows(), "id", "price") == [(1, 2.0), (2, 4.0)]


def test_a_stateful_step_remembers_across_batches_and_restarts(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    step = {"function": "steps.py:Total", "by": ["item"], "schema": "item string, total double"}
    written.step(stateful=step)
    written.table(upsert={"on": ["item"], "newest_by": ["total"]})
    send(client, topic, clicks([1, 4]))
    written.run(spark)
    send(client, topic, clicks([7]))
    written.run(spark)
    assert written.rows() == [{"item": "item-1", "total": 1.0 + 4.0 + 2.0}]
