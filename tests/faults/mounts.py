"""Small file systems of a test's own: full when the test says so, read-only when it says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.tools import ToolOutOfReach

GROUP = "mount"


def _mount(*words: str) -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        raise ToolOutOfReach(GROUP, "mounting a tmpfs needs root and the mount command")
    done = subprocess.run(["mount", *words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise ToolOutOfReach(GROUP, f"mount {' '.join(words)}: {done.stderr.strip()}")


class SmallDisk:
    """A tmpfs of so many bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filling = path / "filling"

    def free_bytes(self) -> int:
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filling.open("ab", buffering=0) as file:
            while free := self.free_bytes():
                file.write(bytes(free))

    def free(self) -> None:
        """Give back what `fill` took."""
        self._filling.unlink()

    def resize(self, size_bytes: int) -> None:
        _mount("-o", f"remount,size={size_bytes}", str(self.path))

    def make_read_only(self) -> None:
        _mount("-o", "remount,ro", str(self.path))

    def make_writable(self) -> None:
        _mount("-o", "remount,rw", str(self.path))


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mounted for as long as the context; `ToolOutOfReach` where that is not allowed."""
    path.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size_bytes}", "headrace-test", str(path))
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=30)
