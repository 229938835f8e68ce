"""Archives are checked offset by offset."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.main import main
from headrace.client import ClientSettings
from headrace.core.errors import InvalidConfig
from headrace.spark.archive import ArchiveDamaged, _judge, _runs, replay, verify
from headrace.spark.encode import Ints
from tests.support.spark_tables import StreamOfBatches, rows


def test_a_whole_archive_has_nothing_to_tell(tmp_path: Path) -> None:
    stream = StreamOfBatches(tmp_path, partitionBy="topic,date")
    stream.run(0, [rows(range(3, 7)), rows(range(2), partition=1)])
    stream.run(1, [rows(range(7, 10), day=2)])
    first, second = verify(tmp_path)
    assert (first.topic, first.partition, first.rows) == ("clicks", 0, 7)
    assert (first.first, first.last, first.is_whole) == (3, 9, True)
    assert (second.partition, second.rows, second.is_whole) == (1, 2, True)


def test_gaps_and_doubles_are_found(tmp_path: Path) -> None:
    stream = StreamOfBatches(tmp_path)
    stream.run(0, [rows([0, 1, 5, 6])])
    stream.run(1, [rows([6, 7, 10])])
    (found,) = verify(tmp_path)
    assert found.gaps == [(2, 4), (8, 9)]
    assert found.duplicates == 1
    assert not found.is_whole


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_looked_at(
    tmp_path: Path, kind: str, first: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "delta":
        stream = StreamOfBatches(tmp_path)
        stream.run(0, [rows(range(3))])
        stream.run(1, [rows(range(3, 5))])
    else:
        for name, offsets in (("a", range(3)), ("b", range(3, 5))):
            pq.write_table(pa.Table.from_batches([rows(offsets)]), tmp_path / f"{name}.parquet")
    by_rows = sorted(tmp_path.glob("*.parquet"), key=lambda each: pq.read_metadata(each).num_rows)
    broken = by_rows[-1] if first else by_rows[0]
    broken.write_bytes(b"no parquet")
    with pytest.raises(ArchiveDamaged, match=rf"{broken.name} cannot be read: ") as raised:
        verify(tmp_path)
    assert [each.rows for each in raised.value.findings] == [2 if first else 3]
    nobody = ClientSettings("127.0.0.1:1")
    with pytest.raises(ArchiveDamaged, match=broken.name):  # before anything is sent
        replay(tmp_path, nobody, to="clicks", topic=None, by_key=False)
    with pytest.raises(SystemExit) as ended:
        main(["archive", "verify", str(tmp_path), "-o", "json"])
    said = capsys.readouterr()
    assert (ended.value.code, json.loads(said.out)[0]["rows"]) == (1, 2 if first else 3)
    assert "cannot be read" in said.err


@given(st.lists(st.lists(st.integers(0, 40), min_size=1), min_size=1))
def test_gaps_and_doubles_are_those_that_counting_finds(pieces: list[list[int]]) -> None:
    everything = sorted(offset for piece in pieces for offset in piece)
    runs = [run for piece in pieces for run in _runs(_ints(sorted(piece)))]
    found = _judge("t", 0, len(everything), runs)
    missing = set(range(everything[0], everything[-1] + 1)) - set(everything)
    assert {n for first, last in found.gaps for n in range(first, last + 1)} == missing
    assert found.duplicates == len(everything) - len(set(everything))
    assert (found.first, found.last) == (everything[0], everything[-1])


def _ints(numbers: list[int]) -> Ints:
    import numpy as np

    return np.array(numbers, np.int64)


def written_by_spark(tmp_path: Path) -> None:
    """What Spark's own sink leaves behind, and one file that it did not finish."""
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for number, name in enumerate(["old", "kept", "new", "unfinished"]):
        directory = tmp_path / "topic=7" / "date=2026-03-01"
        directory.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches([rows(range(number * 5, number * 5 + 5))])
        pq.write_table(table.drop_columns(["topic"]), directory / f"{name}.parquet")
    for entry, names in {"0": ["old"], "1.compact": ["old", "kept"], "2": ["new"]}.items():
        lines = [
            json.dumps({"path": f"file://{tmp_path}/topic=7/date=2026-03-01/{name}.parquet"})
            for name in names
        ]
        (log / entry).write_text("\n".join(["v1", *lines]))


def test_only_files_that_spark_has_finished_count(tmp_path: Path) -> None:
    written_by_spark(tmp_path)
    (found,) = verify(tmp_path)
    assert (found.topic, found.rows, found.last) == ("7", 15, 14)


def test_an_archive_is_found_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory := tmp_path / "archive").mkdir()
    written_by_spark(directory)
    monkeypatch.chdir(tmp_path)
    (found,) = verify(Path("archive"))
    assert (found.topic, found.rows) == ("7", 15)


@pytest.mark.parametrize("name", ["moved", "day=1"])
def test_an_archive_may_be_moved(tmp_path: Path, name: str) -> None:
    (old := tmp_path / "day=0").mkdir()
    written_by_spark(old)
    old.rename(moved := tmp_path / name)
    (found,) = verify(moved)
    assert (found.topic, found.rows) == ("7", 15)


def test_a_file_that_spark_wrote_and_is_not_there_is_named(tmp_path: Path) -> None:
    (old := tmp_path / "old").mkdir()
    written_by_spark(old)
    old.rename(moved := tmp_path / "moved")
    (moved / "topic=7/date=2026-03-01/new.parquet").unlink()
    with pytest.raises(InvalidConfig, match=r"no file topic=7/date=2026-03-01/new\.parquet"):
        verify(moved)


def test_plain_parquet_files_are_an_archive_too(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([rows(range(5))]), tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_batches([rows(range(6, 9))]), tmp_path / "b.parquet")
    assert verify(tmp_path)[0].gaps == [(5, 5)]


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="neither a Delta table nor a directory of Parquet"):
        verify(tmp_path)
    pq.write_table(pa.table({"value": [b"x"]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidConfig, match="has no column 'topic'"):
        verify(tmp_path)
