"""A node on the test's own event loop, for tests that need to look inside."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headrace.core.broker_configs import BrokerConfig
from headrace.core.files import Buffer
from headrace.core.runtime import Clock
from headrace.log.real_files import RealFile
from headrace.node.node import Node
from headrace.node.system import RealClock, RealRandomness, ThreadExecutor
from headrace.security.authorizer import Authorizer
from headrace.testing.unsynced_files import UnsyncedFileSystem


class UnreadableFiles(UnsyncedFileSystem):
    """A disk on which some files cannot be opened, as without the permission to."""

    def __init__(self, *parts: str) -> None:
        """`parts`: what the paths of these files contain."""
        super().__init__()
        self.parts = parts

    def open(self, path: str, *, create: bool = False) -> RealFile:
        self._require_permission(path)
        return super().open(path, create=create)

    def read_file(self, path: str) -> bytes:
        self._require_permission(path)
        return super().read_file(path)

    def _require_permission(self, path: str) -> None:
        if any(part in path for part in self.parts):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


class FullDisk(UnsyncedFileSystem):
    """A disk without room for some files that are written as a whole."""

    def __init__(self) -> None:
        super().__init__()
        # What the paths of these files contain.
        self.full: tuple[str, ...] = ()

    def write_file(self, path: str, data: Buffer) -> None:
        if any(part in path for part in self.full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write_file(path, data)


@asynccontextmanager
async def running_node(
    directory: Path,
    authorizer: Authorizer | None = None,
    *,
    executor: ThreadExecutor | None = None,
    clock: Clock | None = None,
    files: UnsyncedFileSystem | None = None,
    **settings: str,
) -> AsyncIterator[Node]:
    """Start on a free port; `settings` are broker keys with underscores for dots."""
    static = {key.replace("_", "."): value for key, value in settings.items()}
    static.setdefault("listeners", "PLAINTEXT://127.0.0.1:0")
    executor = executor or ThreadExecutor()
    files = files or UnsyncedFileSystem()
    node = Node(
        BrokerConfig.from_static({"log.dirs": str(directory), **static}),
        files=files,
        clock=clock or RealClock(),
        randomness=RealRandomness(),
        executor=executor,
        authorizer=authorizer,
    )
    try:
        await node.start()
        yield node
        await node.stop()
    except BaseException:
        node.kill()
        raise
    finally:
        executor.close()
        files.close()
