"""The history of batches survives its process, whatever was cut short."""

from pathlib import Path

import pytest

from headrace.core.errors import InvalidConfig
from headrace.spark.progress.atomic_write import replace_text
from headrace.spark.progress.history import HEADER, History, history_of
from headrace.spark.progress.measures import to_line
from tests.support.spark_progress import batch


def test_without_a_file_the_newest_batches_are_kept() -> None:
    history = History(batches_max=3)
    for number in range(5):
        history.add(batch(number))
    assert [each.batch for each in history.batches] == [2, 3, 4]


def test_a_batch_is_in_the_file_as_soon_as_it_is_added(tmp_path: Path) -> None:
    history = History(tmp_path / "new" / "clicks.report.jsonl")
    history.add(batch(0))
    assert (tmp_path / "new" / "clicks.report.jsonl").read_text() == HEADER + to_line(batch(0))


def test_the_next_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    History(path).add(batch(0))
    second = History(path)
    second.add(batch(1, run="second"))
    assert second.batches == History(path).batches == [batch(0), batch(1, run="second")]


def test_a_line_cut_short_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    path.write_text(HEADER + to_line(batch(0)) + to_line(batch(1))[:40])
    History(path).add(batch(2))
    assert [each.batch for each in History(path).batches] == [0, 2]


def test_bytes_that_are_no_text_cost_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    path.write_bytes(HEADER.encode() + to_line(batch(0)).encode() + b"\xff\x00\xfe\n")
    assert History(path).batches == [batch(0)]


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    history = History(path, batches_max=5)
    longest = 0
    for number in range(40):
        history.add(batch(number))
        longest = max(longest, len(path.read_text().splitlines()))
    assert longest <= 10
    assert [each.batch for each in History(path, batches_max=5).batches] == [35, 36, 37, 38, 39]
    assert [each.name for each in tmp_path.iterdir()] == ["clicks.report.jsonl"]


def test_the_file_does_not_grow_over_many_short_runs_either(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    for number in range(30):
        History(path, batches_max=5).add(batch(number))
    assert len(path.read_text().splitlines()) <= 10


@pytest.mark.parametrize(
    "content", [b'{"user": "ada"}\n' * 1004, b"", b"\xff\x00"], ids=["data", "empty", "no text"]
)
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = history_of(tmp_path / "clicks.html")
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match="a file of something else"):
        History(path)
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_file_that_became_somebody_elses_meanwhile_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    history = History(path, batches_max=2)
    history.add(batch(0))
    path.write_text("data of somebody else\n")
    with pytest.raises(InvalidConfig):
        history.add(batch(1))
    assert path.read_text() == "data of somebody else\n"


def test_a_report_leaves_files_of_a_like_name_alone(tmp_path: Path) -> None:
    """A user's records are often called as the pipeline is: clicks.yaml, clicks.jsonl."""
    data = tmp_path / "clicks.jsonl"
    data.write_text('{"user": "ada"}\n' * 1004)
    History(history_of(tmp_path / "clicks.html")).add(batch(0))
    assert data.read_text() == '{"user": "ada"}\n' * 1004


def test_a_file_is_replaced_whole_for_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "clicks.html"
    replace_text(path, "the old text")
    with path.open() as reader:
        replace_text(path, "new")
        assert reader.read() == "the old text"
    assert path.read_text() == "new"


def test_a_batch_is_kept_in_memory_when_the_disk_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "clicks.report.jsonl"
    history = History(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        history.add(batch(0))
    assert history.batches == [batch(0)]
