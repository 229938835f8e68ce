"""What the process costs: processor time, memory, open files; under the names everybody uses."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from headrace.core.metrics import Family, Metric
from headrace.core.runtime import Clock

CPU: Final = Metric(
    "process_cpu_seconds_total", "counter", "Processor time spent, in user and system mode."
)
RESIDENT: Final = Metric("process_resident_memory_bytes", "gauge", "Memory in use.")
OPEN_FILES: Final = Metric("process_open_fds", "gauge", "Open file descriptors.")
OPEN_FILES_MAX: Final = Metric("process_max_fds", "gauge", "File descriptors that may be open.")
STARTED: Final = Metric(
    "process_start_time_seconds", "gauge", "When the process started, in seconds since 1970."
)

_PAGES_RESIDENT: Final = 1
_STARTED_TICKS: Final = 19  # behind the command's name, which may hold blanks


class ProcessMetrics:
    """A source of metrics: this process as the operating system sees it.

    Where there is no /proc only the processor time is told.
    """

    def __init__(self, clock: Clock) -> None:
        self._started = _start_time(clock.now_ms() / 1000)

    def collect(self) -> Iterator[Family]:
        used = os.times()
        yield CPU.value(used.user + used.system)
        with suppress(OSError):
            with open("/proc/self/statm") as statm:
                pages = int(statm.read().split()[_PAGES_RESIDENT])
            yield RESIDENT.value(pages * os.sysconf("SC_PAGE_SIZE"))
            yield OPEN_FILES.value(len(os.listdir("/proc/self/fd")))
        with suppress(ImportError):
            import resource

            yield OPEN_FILES_MAX.value(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if self._started is not None:
            yield STARTED.value(self._started)


def _start_time(now: float) -> float | None:
    try:
        with open("/proc/self/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[_STARTED_TICKS])
        with open("/proc/uptime") as uptime:
            up = float(uptime.read().split()[0])
    except OSError:
        return None
    return round(now - up + ticks / os.sysconf("SC_CLK_TCK"), 2)
