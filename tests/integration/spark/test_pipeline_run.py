"""Pipelines in the session that the tests share: what arrives in their sinks."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.pipeline import load
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.integration.spark.test_sinks import records
from tests.support.spark_readers import send

PATIENCE_SECONDS = 120


def clicks(count: int) -> list[bytes]:
    return [
        json.dumps({"item": n % 3, "price": n % 5, "at": f"2026-01-01T00:0{n % 2}:00Z"}).encode()
        for n in range(count)
    ]


def test_clicks_are_filtered_into_a_table_and_counted_into_a_topic(
    spark: SparkSession, broker: Broker, client: Client, make_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, counts, dead = make_topic(partitions=2), make_topic("counts"), make_topic("dead")
    send(client, topic, [*clicks(30), b"not json"])
    pipeline = load(f"""
name: clicks
checkpoint: {tmp_path}/checkpoint
source:
  topics: [{topic}]
  value: {{format: json, schema: "item int, price double, at timestamp"}}
  commit_group: {topic}-group
on_bad_record: {{dead_letter: {dead}}}
steps:
  - filter: price > 0
sinks:
  - delta: {{path: {tmp_path}/table}}
  - topic: {{name: {counts}, key: [window, item], mode: update}}
    steps:
      - window: {{time: at, size: 1 minute, watermark: 1 minute, by: [item], agg: {{n: count(*)}}}}
""")
    run = pipeline.start(spark, once=True, bootstrap_servers=broker.bootstrap_servers)
    assert run.wait(PATIENCE_SECONDS)
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 24
    found = [json.loads(each.value or b"") for each in records(client, counts)]
    assert sum(each["n"] for each in found) == 24
    assert len({each.key for each in records(client, counts)}) == len(found) == 6
    assert [each.value for each in records(client, dead)] == [b"not json"]
    for sink in ("delta", "topic"):
        lag = client.admin.group_lag(f"{topic}-group-{sink}")
        assert sum(each.lag or 0 for each in lag) == 0
