"""Pipelines of tests: written briefly, run over what is there, and what their sinks then hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.spark.pipeline import Pipeline, load

PATIENCE_SECONDS = 120
CLICK = "id int, item string, price double, at timestamp"
MINUTE_MS = 60_000


class Written:
    """A pipeline over one topic with values in JSON; its directory holds all that it writes."""

    def __init__(self, directory: Path, servers: str, topic: str, schema: str = CLICK) -> None:
        self.directory = directory
        self.document: dict[str, Any] = {
            "name": "clicks",
            "bootstrap_servers": servers,
            "checkpoint": str(directory / "checkpoint"),
            "source": {"topics": [topic], "value": {"format": "json", "schema": schema}},
            "steps": [],
            "sinks": [],
        }

    @property
    def source(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["source"]
        return found

    def step(self, **step: Any) -> Written:
        self.document["steps"].append(step)
        return self

    def sink(self, **sink: Any) -> Written:
        self.document["sinks"].append(sink)
        return self

    def table(self, name: str = "table", **more: Any) -> Written:
        """A Delta sink of this name."""
        return self.sink(delta={"path": str(self.directory / name), **more}, name=name)

    def save(self) -> Path:
        path = self.directory / "clicks.yaml"
        path.write_text(yaml.safe_dump(self.document, sort_keys=False))
        return path

    def load(self) -> Pipeline:
        return load(self.save())

    def run(self, spark: SparkSession) -> None:
        """Until what is there is done."""
        assert self.load().start(spark, once=True).wait(PATIENCE_SECONDS)

    def rows(self, name: str = "table") -> list[dict[str, Any]]:
        """What a table of ours holds."""
        found: pa.Table = DeltaTable(self.directory / name).to_pyarrow_table()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows


def clicks(ids: Iterable[int], *, minute: int = 0) -> list[bytes]:
    """Clicks on three items, a second apart within a minute of 2026."""
    return [
        json.dumps(
            {
                "id": each,
                "item": f"item-{each % 3}",
                "price": float(each % 5),
                "at": f"2026-01-01T00:{minute:02d}:{each % 60:02d}Z",
            }
        ).encode()
        for each in ids
    ]
