"""The batches so far: in memory, and as JSON lines in a file that outlives the driver.

A line is written whole by one call, so a driver that is killed loses nothing it had written, and a
line is cut short only if the machine goes down; the next run leaves such a line out. The file is
cut to the newest batches once it has twice as many as are kept.
"""

from collections import deque
from pathlib import Path
from typing import Final

from headrace.spark.progress.measures import Progress, from_line, to_line
from headrace.spark.progress.replacing import replace_text

BATCHES_MAX: Final = 20_000


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
        """Keep a batch; raises OSError if the file cannot be written, with the batch kept."""
        self._batches.append(progress)
        if self._path is None:
            return
        self._append(self._path, to_line(progress).encode())
        self._lines += 1
        most = self._batches.maxlen
        if most is not None and self._lines >= 2 * most:
            self._rewrite(self._path)

    def _load(self, path: Path) -> None:
        self._append(path, b"")  # refuses now where nothing can be written later
        text = path.read_text(errors="replace")
        lines = text.splitlines()
        found = [progress for line in lines if (progress := from_line(line)) is not None]
        self._batches.extend(found)
        self._lines = len(lines)
        if text and not text.endswith("\n"):
            self._append(path, b"\n")  # the next line must not begin in one that was cut short

    @staticmethod
    def _append(path: Path, data: bytes) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(data)

    def _rewrite(self, path: Path) -> None:
        replace_text(path, "".join(map(to_line, self._batches)))
        self._lines = len(self._batches)
