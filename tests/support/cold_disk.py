"""A disk of which nothing is in the page cache, and which may let workers wait."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.log.page_cache import NotInPageCache, may_read_disk
from headrace.log.real_files import RealFile
from headrace.node.node import Node

GIVE_UP_SECONDS = 10


class ColdDisk:
    """Every part of a topic's files has to be waited for once; workers wait until it is well."""

    def __init__(self, topic: str) -> None:
        self._part = f"/{topic}-"
        self.is_cold = False
        self.is_well = threading.Event()
        self.reads_of_the_loop = 0
        self.forgets = False
        self._loop = threading.get_ident()
        self._warm: set[tuple[str, int]] = set()
        self._read = RealFile.read

    def cool_down(self, node: Node) -> None:
        """As after a restart: nothing is in memory, nor where readers have been."""
        for partition in node.services.replicas:
            for segment in partition.log.segments:
                segment.read_positions.clear()
        self.is_cold = True

    def read(self, file: RealFile, position: int, size: int) -> bytes:
        if self.is_cold and self._part in file.path and (file.path, position) not in self._warm:
            if not may_read_disk():
                raise NotInPageCache(file, position, size)
            if threading.get_ident() == self._loop:
                self.reads_of_the_loop += 1
            elif self.is_well.wait(GIVE_UP_SECONDS) and not self.forgets:
                self._warm.add((file.path, position))
        return self._read(file, position, size)


@contextmanager
def cold_disk(topic: str) -> Iterator[ColdDisk]:
    """In force while this is open; cold once the test says so."""
    cold = ColdDisk(topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RealFile, "read", lambda *arguments: cold.read(*arguments))
        yield cold
        cold.is_well.set()
