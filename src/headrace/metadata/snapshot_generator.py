"""When a snapshot of the metadata is taken: beside everything else, one at a time."""

import asyncio
import logging
from functools import partial

from headrace.core.errors import StorageError
from headrace.core.runtime import Executor
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.metadata_log import MetadataLog

SNAPSHOT_RECORDS_MIN = 2_000
SNAPSHOT_BYTES_MAX = 20 << 20

logger = logging.getLogger(__name__)


class SnapshotGenerator:
    """A publisher that writes down the image when replaying the log would be the dearer.

    Nobody waits for it: the image is a value, the log goes on behind it, and a snapshot that
    cannot be taken costs nothing, since the log holds everything.
    """

    def __init__(
        self, log: MetadataLog, executor: Executor, *, records_min: int = SNAPSHOT_RECORDS_MIN
    ) -> None:
        self._log = log
        self._executor = executor
        self._records_min = records_min
        self._running: asyncio.Task[None] | None = None
        self._stopping = False

    def publish(self, _old: Image, new: Image, _delta: Delta) -> None:
        if self._running is None and not self._stopping and self._is_due(new):
            self._running = asyncio.get_running_loop().create_task(self._take(new))

    def _is_due(self, image: Image) -> bool:
        records = image.offset + 1 - self._log.snapshot_end_offset
        if records <= 0:
            return False
        if self._log.bytes_since_snapshot >= SNAPSHOT_BYTES_MAX:
            return True
        return records >= self._records_min and records >= image.record_count

    async def _take(self, image: Image) -> None:
        try:
            await self._executor.run(partial(self._log.take_snapshot, image))
        except StorageError as error:
            logger.error("snapshot failed: error=%s", error)
        except Exception:
            logger.exception("snapshot failed")
        finally:
            self._running = None

    async def stop(self) -> None:
        """Finish the one that is under way."""
        self._stopping = True
        if self._running is not None:
            await self._running

    def kill(self) -> None:
        """Stop at once, as the death of the process would."""
        self._stopping = True
        if self._running is not None:
            self._running.cancel()
