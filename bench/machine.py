"""What the figures were taken on: file system, disk flush times, processor, load."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from bench.percentiles import percentile

_FLUSHES = 400


@dataclass(frozen=True, slots=True)
class Machine:
    """The circumstances of a run."""

    file_system: str
    fdatasync_p50_ms: float
    fdatasync_p99_ms: float
    processor: str
    cores: int
    memory_gb: float
    python: str


def look_at(directory: Path) -> Machine:
    """Measure the disk under `directory` and name the rest."""
    flushes = fdatasync_ms(directory, _FLUSHES)
    return Machine(
        file_system=file_system_of(directory),
        fdatasync_p50_ms=percentile(flushes, 50),
        fdatasync_p99_ms=percentile(flushes, 99),
        processor=_cpu_model(),
        cores=os.cpu_count() or 0,
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        python=platform.python_version(),
    )


def fdatasync_ms(directory: Path, count: int) -> list[float]:
    """How long `count` flushes of a small append take, one after another."""
    path = directory / "fdatasync.probe"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    taken = []
    try:
        for _ in range(count):
            os.write(descriptor, b"x" * 200)
            start = time.perf_counter()
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - start) * 1e3)
    finally:
        os.close(descriptor)
        path.unlink()
    return taken


def file_system_of(directory: Path) -> str:
    """The type of the file system that holds `directory`."""
    target = str(directory.resolve())
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
