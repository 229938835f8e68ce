"""The batches so far: in memory, and as JSON lines in a file that outlives the driver.

A line is written whole by one call, so a driver that is killed loses nothing it had written, and a
line is cut short only if the machine goes down; the next run leaves such a line out. The file is
cut to the newest batches once it has twice as many as are kept.

The file's name is made of the report's, so nobody has named it: its first line says whose it is,
and a file without that line is somebody else's. Such a file is refused, and never written to.
"""

import json
from collections import deque
from pathlib import Path
from typing import Final

from headrace.core.errors import InvalidConfig
from headrace.spark.progress.atomic_write import replace_text
from headrace.spark.progress.measures import Progress, from_line, to_line

BATCHES_MAX: Final = 20_000
HEADER: Final = json.dumps({"headrace": "batches of a report", "version": 1}) + "\n"


def history_of(report: Path) -> Path:
    """Where the batches of a report are kept, beside it."""
    return report.with_name(f"{report.stem}.report.jsonl")


class History:
    """The newest batches; without a path, those of this process alone."""

    def __init__(self, path: Path | None = None, *, batches_max: int = BATCHES_MAX) -> None:
        self._path = path
        self._batches: deque[Progress] = deque(maxlen=batches_max)
        self._lines = 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._load(path)

    @property
    def batches(self) -> list[Progress]:
        """Oldest first, by the order in which they ended."""
        return list(self._batches)

    def add(self, progress: Progress) -> None:
        """Keep a batch; raises OSError if the file cannot be written, with the batch kept.

        Raises InvalidConfig where the file is somebody else's by now.
        """
        self._batches.append(progress)
        if self._path is None:
            return
        self._begin(self._path)  # somebody may have moved it away, or put another in its place
        self._append(self._path, to_line(progress).encode())
        self._lines += 1
        most = self._batches.maxlen
        if most is not None and self._lines >= 2 * most:
            self._rewrite(self._path)

    def _load(self, path: Path) -> None:
        self._begin(path)
        self._append(path, b"")  # refuses now where nothing can be written later
        text = path.read_text(errors="replace")
        lines = text.splitlines()[1:]
        found = [progress for line in lines if (progress := from_line(line)) is not None]
        self._batches.extend(found)
        self._lines = len(lines)
        if text and not text.endswith("\n"):
            self._append(path, b"\n")  # the next line must not begin in one that was cut short

    @staticmethod
    def _begin(path: Path) -> None:
        """A file of ours, new where there is none."""
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(HEADER)
        except FileExistsError:
            _require_ours(path)

    @staticmethod
    def _append(path: Path, data: bytes) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(data)

    def _rewrite(self, path: Path) -> None:
        replace_text(path, HEADER + "".join(map(to_line, self._batches)))
        self._lines = len(self._batches)


def _require_ours(path: Path) -> None:
    """Raise where a file was not begun by a report; OSError where it cannot be read."""
    with path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER.encode():
            raise InvalidConfig(
                f"report: its batches go to {path}, and that is a file of something else",
                hint="give the report another name, or move that file",
            )
