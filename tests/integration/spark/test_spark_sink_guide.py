"""The sections on sinks of docs/spark.md, their code run as it stands."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.testing import Broker
from tests.integration.spark.test_sinks import records
from tests.integration.spark.test_spark_guide import PAGE, blocks_by_section
from tests.support.spark_readers import send

SECTIONS = (
    "Write to topics",
    "Archive topics",
    "Read a table back",
    "Without a table",
    "Check and replay",
    "Merge changes",
    "Java",
)


def test_the_guide_for_sinks_does_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        for topic in ("orders", "totals", "customers"):
            broker.create_topic(topic)
        send(client, "orders", [b"espresso", b"macchiato", b"espresso"])
        send(client, "customers", [b'{"id":1,"name":"ann"}', b'{"id":2}', b'{"id":2,"op":"d"}'])
        names: dict[str, Any] = {"spark": spark}
        out = io.StringIO()
        for title in SECTIONS:
            for block in blocks_by_section()[title]:
                program = block.replace("127.0.0.1:9092", broker.bootstrap_servers)
                program = program.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
                program = program.replace("/data/", f"{tmp_path}/data/")
                with contextlib.redirect_stdout(out):
                    exec(compile(program, str(PAGE), "exec"), names)
        assert out.getvalue() == "3\n3\norders 0 3 True\n3\n"
        found = [(each.key, each.value) for each in records(client, "totals")]
        assert found[0] == (b"espresso", b"17")
        assert dict(found) == {b"espresso": b"2", b"macchiato": b"1"}
        table = DeltaTable(tmp_path / "data" / "orders").to_pyarrow_table()
        assert table.num_rows == spark.read.parquet(f"{tmp_path}/data/orders-parquet").count() == 3
        customers = DeltaTable(tmp_path / "data" / "customers").to_pyarrow_table()
        customers = customers.drop_columns("timestamp")
        assert customers.to_pylist() == [{"id": 1, "name": "ann", "offset": 0}]
