"""What commands print: tables for people, JSON for programs, progress on stderr."""

import json
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

UNFOLDED = 1000
UNKNOWN = "-"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def counted(number: int, thing: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def print_json(value: Any) -> None:
    """One JSON document on stdout; bytes that are text become text, others hexadecimal."""
    print(json.dumps(value, default=_encodable))


def print_line(value: Any) -> None:
    """One JSON value on a line of its own, flushed so that a reader of the pipe sees it."""
    sys.stdout.write(json.dumps(value, default=_encodable) + "\n")
    sys.stdout.flush()


def size(value: float | None) -> str:
    """Bytes in the unit that fits."""
    if value is None:
        return UNKNOWN
    number = float(value)
    for unit in _UNITS[:-1]:
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} {_UNITS[-1]}"


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    title: str = "",
    right: Collection[str] = (),
) -> None:
    """A table as wide as its content; numbers to the right, and the columns named."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        is_right = numeric or column in right
        table.add_column(column, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    # Into a pipe or a file nothing is folded: the next program wants whole words.
    width = None if sys.stdout.isatty() else UNFOLDED
    Console(highlight=False, width=width).print(table)


def progress_bar() -> "Progress":
    """A bar with rate and time left on stderr; silent when stderr is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def readable(data: bytes | None) -> str | None:
    """Bytes for people: text where it is text, else hexadecimal."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def _encodable(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return readable(bytes(value))
    return str(value)
