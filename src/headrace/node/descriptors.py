"""The descriptors of this process, divided at start between files and connections.

    files     the log's cache of open files (`log.real_files.open_files_max_for`)
    reserve   listeners, lock, pipes of workers; flush and roll when all else is taken
    rest      connections: most for the Kafka listeners, some for each of the others

Without a division, connections alone could take all of them, and no segment could be rolled.
"""

from typing import NamedTuple

from headrace.log.real_files import open_files_max_for

_RESERVE_MIN, _RESERVE_MAX = 32, 256


class DescriptorShares(NamedTuple):
    """How many descriptors each party may hold."""

    files: int
    kafka: int
    http: int
    text: int


def divide(limit: int) -> DescriptorShares:
    """Of `limit` descriptors in all; even a tiny limit leaves each party one."""
    files = open_files_max_for(limit)
    reserve = max(_RESERVE_MIN, min(limit // 16, _RESERVE_MAX))
    connections = max(0, limit - files - reserve)
    extra = max(1, connections // 8)
    return DescriptorShares(files, max(1, connections - 2 * extra), extra, extra)
