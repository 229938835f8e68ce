"""docs/pipelines.md: its files are checked, its commands and its Python run as they stand."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.cli.main import main
from headrace.client import Client
from headrace.spark.pipeline import load
from headrace.testing import Broker
from tests.integration.spark.test_sinks import records
from tests.support.spark_readers import send

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pipelines.md"
BROKER = "127.0.0.1:9092"
AT_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z, the time of the backfill


def blocks(kind: str) -> list[str]:
    """The blocks of one kind; commands have none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [text for named, text in found if named == kind]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fitted(text: str, broker: Broker, place: Path) -> str:
    """The text of the page with a broker and a disk of the test's own."""
    return text.replace(BROKER, broker.bootstrap_servers).replace("/data/", f"{place}/data/")


def click(**fields: Any) -> bytes:
    at = "2026-01-31T12:00:00Z"
    return json.dumps({"user": "ann", "item": 7, "price": 2.5, "at": at} | fields).encode()


def commands(client: Client, text: str, extra: list[str]) -> str:
    """Run the lines of a block that are commands; what they print."""
    out = io.StringIO()
    for line in text.splitlines():
        words = shlex.split(line)[1:]
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
            main([*words, *(extra if words[0] == "pipeline" else ["-b", extra[1]])])
        assert not ended.value.code, line
        if words[-1] == "clicks":
            send(client, "clicks", [click(), b"not json", click(price=0)], start_ms=AT_MS)
    return out.getvalue()


def test_the_first_pipeline_runs_by_the_commands_of_the_page(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    first, backfill = blocks("")
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        (place / "clicks.yaml").write_text(fitted(blocks("yaml")[0], broker, place))
        servers = ["--bootstrap-servers", broker.bootstrap_servers]
        said = commands(client, first, servers)
        assert "clicks.yaml: clicks is fine, with 2 sinks" in said
        assert f"{place}/data/checkpoints/clicks/topic" in said
        [count] = records(client, "clicks.by_item")
        assert json.loads(count.value or b"")["n"] == 1
        assert len(records(client, "clicks.bad")) == 1
        said = commands(client, backfill, servers)
        assert said.startswith(
            "clicks-0: offsets 0 to 3\ndelta: wrote 1 row\n  note: the pipeline "
        )
        names: dict[str, Any] = {}
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(blocks("python")[1], names)
        assert out.getvalue().splitlines() == [
            "['clicks-delta', 'clicks-topic']",
            "3",
            "from pyspark.sql import functions as F",
        ]


def test_every_pipeline_of_the_page_passes_its_check(spark: SparkSession, place: Path) -> None:
    (place / "prices.py").write_text(blocks("python")[0])
    (place / "items.csv").write_text("item,title\n7,cup\n")
    with Broker() as broker:
        for topic in ("clicks", "clicks.bad", "clicks.by_item", "customers"):
            broker.create_topic(topic)
        for number, text in enumerate(blocks("yaml")):
            path = place / f"{number}.yaml"
            path.write_text(fitted(text, broker, place))
            assert load(path).check(spark) == []
        steps = load(place / "3.yaml")
        assert steps.name == "steps"
        with Client(broker.bootstrap_servers) as client:
            send(client, "clicks", [click(price=2.345), click(price=2.345), click(user="bob")])
        assert steps.start(spark, once=True).wait(120)
        found = spark.read.parquet(f"{place}/data/prices").collect()
        assert sorted((row.title, row.price) for row in found) == [("cup", 2.3), ("cup", 2.5)]
