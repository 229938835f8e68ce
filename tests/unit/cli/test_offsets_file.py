"""Offsets in a file, as Kafka's own tool writes them."""

from pathlib import Path

import pytest
import typer

from headrace.cli.group.offsets_file import read_offsets
from headrace.core.ids import TopicPartition


def write(directory: Path, text: str) -> Path:
    path = directory / "offsets.csv"
    path.write_text(text)
    return path


def test_lines_of_three_columns_are_for_any_group(tmp_path: Path) -> None:
    path = write(tmp_path, 'orders,0,5\n"or,ders",12,7\r\n\n')
    assert read_offsets(path, "g") == {
        TopicPartition("orders", 0): 5,
        TopicPartition("or,ders", 12): 7,
    }


def test_lines_of_four_columns_name_their_group(tmp_path: Path) -> None:
    path = write(tmp_path, "g,orders,0,5\nother,orders,1,6\n")
    assert read_offsets(path, "g") == {TopicPartition("orders", 0): 5}


def test_a_heading_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, "topic,partition,offset\norders,0,5\n")
    assert read_offsets(path, "g") == {TopicPartition("orders", 0): 5}


@pytest.mark.parametrize("line", ["orders,0", "orders,x,5", "orders,0,-1", ",0,5", "a,b,c,d,e"])
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"orders,0,5\n{line}\n")
    with pytest.raises(typer.BadParameter, match="line 2: expected topic,partition,offset"):
        read_offsets(path, "g")
