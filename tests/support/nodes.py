"""A node on the test's own event loop, for tests that need to look inside."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headrace.core.broker_configs import BrokerConfig
from headrace.core.seams import Clock
from headrace.node.node import Node
from headrace.node.real_seams import RealClock, RealRandomness, ThreadExecutor
from headrace.security.authorizer import Authorizer
from headrace.testing.unsynced_files import UnsyncedFileSystem


@asynccontextmanager
async def running_node(
    directory: Path,
    authorizer: Authorizer | None = None,
    *,
    executor: ThreadExecutor | None = None,
    clock: Clock | None = None,
    **settings: str,
) -> AsyncIterator[Node]:
    """Start on a free port; `settings` are broker keys with underscores for dots."""
    static = {key.replace("_", "."): value for key, value in settings.items()}
    static.setdefault("listeners", "PLAINTEXT://127.0.0.1:0")
    executor = executor or ThreadExecutor()
    files = UnsyncedFileSystem()
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
