"""Offsets in a file, as Kafka's own tool exports them: `topic,partition,offset` per line."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from headrace.core.ids import TopicPartition


def read_offsets(path: Path, group: str) -> "dict[TopicPartition, int]":
    """The offsets for a group; lines of four columns begin with the group they are for."""
    from headrace.core.ids import TopicPartition

    found: dict[TopicPartition, int] = {}
    with path.open(newline="", encoding="utf-8-sig") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or (number == 1 and cells[-3:] == ["topic", "partition", "offset"]):
                continue
            if len(cells) == 4:
                if cells[0] != group:
                    continue
                cells = cells[1:]
            if len(cells) != 3 or not cells[0] or not all(each.isdecimal() for each in cells[1:]):
                raise typer.BadParameter(
                    f"{path}, line {number}: expected topic,partition,offset",
                    param_hint="--from-file",
                )
            found[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    return found
