"""The code of docs/spark.md is run as it stands, in its order, against a broker elsewhere."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client import EARLIEST, Client, TopicPartition
from headrace.spark.options import SOURCE_NAMES
from headrace.testing import Broker
from tests.support.spark_readers import send

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
SECTIONS = ("Spark", "Port a job", "Type a payload", "See lag")


def blocks_by_section() -> dict[str, list[str]]:
    """The Python of each section, under its title."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title = part.splitlines()[0]
        found[title] = re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    return found


def test_the_guide_for_spark_does_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        for topic in ("orders", "clicks", "clicks.bad"):
            broker.create_topic(topic)
        send(client, "orders", [b"espresso", b"macchiato", b"lungo"])
        good = b'{"user":"ann","item":7,"price":2.5}'
        send(client, "clicks", [good, b"not json", good])
        names: dict[str, Any] = {}
        said: list[str] = []
        for title in SECTIONS:
            for block in blocks_by_section()[title]:
                program = block.replace("127.0.0.1:9092", broker.bootstrap_servers)
                program = program.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(program, str(PAGE), "exec"), names)
                said.append(out.getvalue())
        try:
            count, copied, typed, clean, archived, lag = said
            assert (count, copied, clean, archived) == ("3\n", "3\n", "2\n", "")
            assert typed.count("ann") == 2
            assert "not json" in typed
            assert lag == "orders-0 0\n"
            with client.reader({TopicPartition("clicks.bad", 0): EARLIEST}) as letters:
                assert next(letters).value == b"not json"
        finally:
            spark.catalog.dropTempView("copied")


@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_every_option_of_a_read_is_explained(name: str) -> None:
    assert re.search(rf"[`\"]{re.escape(name)}[`\"=]", PAGE.read_text())
