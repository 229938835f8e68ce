"""The watermark that a batch drops late rows by, out of the checkpoint of its query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from headrace.client import TopicPartition
from headrace.core.errors import InvalidConfig
from headrace.spark.options import column_options, source_options
from headrace.spark.source import TopicRanges
from headrace.spark.watermarks import NOTHING_IS_LATE_MS, late_before_ms
from tests.support.spark_readers import stream_reader

Offsets = dict[str, dict[str, int]]


def noted(checkpoint: Path, batch: int, end: Any, watermark_ms: int = 0) -> None:
    """A batch as Spark 4.3 notes it when it is planned."""
    told = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}}
    file = checkpoint / "offsets" / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", json.dumps(told), json.dumps(end)]))


def end(offset: int) -> Offsets:
    return {"clicks": {"0": offset}}


def test_it_is_that_of_the_batch_before(tmp_path: Path) -> None:
    noted(tmp_path, 9, end(10), 1_000)
    noted(tmp_path, 10, end(20), 2_000)
    assert late_before_ms(str(tmp_path), end(20)) == 1_000
    assert late_before_ms(f"file://{tmp_path}", end(20)) == 1_000


def test_nothing_is_late_in_the_first_batch(tmp_path: Path) -> None:
    noted(tmp_path, 0, end(10))
    assert late_before_ms(str(tmp_path), end(10)) == NOTHING_IS_LATE_MS


def test_a_batch_other_than_the_newest_is_not_known(tmp_path: Path) -> None:
    noted(tmp_path, 0, end(10))
    noted(tmp_path, 1, end(20))
    assert late_before_ms(str(tmp_path), end(10)) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path / "offsets" / "1").unlink(),
        lambda path: (path / "offsets" / "1").write_text("v1\n{"),
        lambda path: (path / "offsets" / "2").write_text("v1\n{}\n{}\n{}"),
        lambda path: (path / "offsets" / "2").write_text("v1\n{}\n[1]"),
    ],
)
def test_what_cannot_be_read_is_not_known(tmp_path: Path, spoil: Any) -> None:
    noted(tmp_path, 1, end(10), 1_000)
    noted(tmp_path, 2, end(20))
    assert late_before_ms(str(tmp_path), end(20)) == 1_000
    spoil(tmp_path)
    assert late_before_ms(str(tmp_path), end(20)) is None


def test_a_checkpoint_of_another_machine_is_not_known() -> None:
    assert late_before_ms("s3://bucket/checkpoint", end(20)) is None
    assert late_before_ms("/no/such/checkpoint", end(20)) is None


def test_a_source_hands_the_watermark_to_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "clicks",
        "startingOffsets": json.dumps({"clicks": {"0": 0, "1": 0}}),
        "watermarkCheckpoint": str(tmp_path),
        "columns": "value",
    }
    assert column_options(options)[0] == ("value", "_late_before")
    finish = {"clicks": {"0": 20, "1": 20}}
    noted(tmp_path, 3, {"clicks": {"0": 10, "1": 10}}, 1_000)
    noted(tmp_path, 4, finish)
    reader = stream_reader({**options, "columns": "value", "parallelism": "2"})
    monkeypatch.setattr(reader._offset_resolver, "earliest", lambda _: dict[TopicPartition, int]())
    tasks: list[InputPartition] = list(reader.partitions({"clicks": {"0": 10, "1": 10}}, finish))
    assert len(tasks) == 2
    assert all(isinstance(task, TopicRanges) and task.late_before_ms == 1_000 for task in tasks)


@pytest.mark.parametrize(("streaming", "value"), [(False, "/data"), (True, " ")])
def test_it_is_for_streams_and_names_a_place(streaming: bool, value: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks"}
    with pytest.raises(InvalidConfig, match="watermarkCheckpoint"):
        source_options({**options, "watermarkCheckpoint": value}, streaming=streaming)
