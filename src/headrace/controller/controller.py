"""The driver of the metadata machine: one node that is a quorum of one.

    submit ──> decide ──> append ──> flush (commit) ──> apply ──> publish ──> reply

Commands that arrive while a flush is under way are decided together afterwards and share the
next one. A reply leaves only after its records are flushed and every publisher has seen the new
image. If a flush fails, what is on disk is unknown: the commands fail, the image stays as it was,
and nothing more is changed until the log has been opened again.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any

from headrace.controller.decision_context import DecisionContext
from headrace.controller.machine import MetadataMachine
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import StorageError, StorageUnavailable
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.runtime import Clock, Executor, Randomness
from headrace.log.directory import LogDirectory
from headrace.machine.interface import Command, Reply
from headrace.machine.pending_commands import PendingCommands
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.publisher import MetadataPublishers
from headrace.metadata.records import MetadataRecord, bootstrap_records

RECORDS_PER_ROUND_MAX = 10_000
"""A round takes no further command once it has this many records; its batch stays readable."""

FLUSH_RETRY_SECONDS = 0.1
SNAPSHOT_RECORDS_MIN = 2_000
SNAPSHOT_BYTES_MAX = 20 << 20

logger = logging.getLogger(__name__)


class Controller:
    """Holds the image and changes it only through `submit`, which may one day be remote."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: NodeId,
        directory: LogDirectory,
        publishers: MetadataPublishers,
        *,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        executor: Executor,
        snapshot_records_min: int = SNAPSHOT_RECORDS_MIN,
    ) -> None:
        self._publishers = publishers
        self._executor = executor
        self._snapshot_records_min = snapshot_records_min
        self._log = MetadataLog(files, directory, clock, node_id)
        self._machine = MetadataMachine(DecisionContext(config, randomness))
        self._pending_commands = PendingCommands(self._machine, Image(directory.cluster_id))
        self._queue: deque[tuple[Command[Any], asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()
        self._failure: StorageError | None = None
        self._stopping = False
        self._runner: asyncio.Task[None] | None = None

    @property
    def image(self) -> Image:
        """The newest committed metadata, though publishers may not have seen it yet."""
        return self._pending_commands.state

    async def start(self) -> None:
        """Load the image, take the lead of a new epoch, and accept commands."""
        image = await self._executor.run(self._load_and_start_epoch)
        self._pending_commands = PendingCommands(self._machine, image)
        await self._publishers.publish(image)
        self._publishers.on_added = self._wake.set
        self._runner = asyncio.get_running_loop().create_task(self._run())

    def _load_and_start_epoch(self) -> Image:
        image = self._log.load(self._pending_commands.state)
        image = self._log.start_epoch(image)
        if not image.features:
            records = bootstrap_records()
            self._log.append(records)
            image = self._machine.apply(image, records)
        # Also what a killed process left in the page cache: it counts from here on.
        self._log.flush()
        return image

    async def submit(self, command: Command[Reply]) -> Reply:
        """Carry out `command` and return its answer once that would survive a power cut.

        Raises `StorageError` (retriable) when the disk fails, and `ApiError` where a command as a
        whole is refused. Commands are decided in the order of the calls.
        """
        if self._failure is not None or self._stopping or self._runner is None:
            raise self._refusal()
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append((command, reply))
        self._wake.set()
        return await reply

    async def stop(self) -> None:
        """Finish what was submitted, then stop; the log is closed with its directory."""
        self._stopping = True
        self._wake.set()
        if self._runner is not None:
            await self._runner

    def kill(self) -> None:
        """Stop at once, as the death of the process would: nothing is written or answered."""
        self._stopping = True
        if self._runner is not None:
            self._runner.cancel()

    async def _run(self) -> None:
        try:
            while self._queue or not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                await self._publishers.publish(self.image)  # to those that were added
                while self._queue:
                    await self._round()
        finally:
            for _, reply in self._queue:
                reply.cancel()

    async def _round(self) -> None:
        """Decide what is queued, commit it as one batch, and answer."""
        before = self.image
        replies, records = self._decide()
        try:
            if records:
                await self._write(records)
        except Exception as error:
            self._fail(error, replies)
            return
        except asyncio.CancelledError:
            _cancel(replies)
            raise
        done = self._pending_commands.commit()
        if records:
            try:
                delta = Delta.of_records(records, before, self.image)
                await self._publishers.publish(self.image, delta)
            except asyncio.CancelledError:
                _cancel(replies)
                raise
        for pending, reply in zip(done, replies, strict=True):
            if not reply.done():
                reply.set_result(pending.reply)
        if records:
            await self._maybe_take_snapshot()

    async def _write(self, records: list[MetadataRecord]) -> None:
        """In a worker, since thousands of records take their time to be encoded.

        A flush that could not be tried is tried until it is: the records are in the log and will
        be there after a restart, so to refuse the commands would be a lie.
        """
        put_off = await self._executor.run(partial(self._append_and_flush, records))
        while put_off is not None:
            logger.warning("flush of the metadata log put off: error=%s", put_off)
            await asyncio.sleep(FLUSH_RETRY_SECONDS)
            put_off = await self._executor.run(self._flush)

    def _append_and_flush(self, records: list[MetadataRecord]) -> StorageUnavailable | None:
        self._log.append(records)
        return self._flush()

    def _flush(self) -> StorageUnavailable | None:
        try:
            self._log.flush()
        except StorageUnavailable as error:
            return error
        return None

    def _decide(self) -> tuple[list[asyncio.Future[Any]], list[MetadataRecord]]:
        replies: list[asyncio.Future[Any]] = []
        records: list[MetadataRecord] = []
        while self._queue and len(records) < RECORDS_PER_ROUND_MAX:
            command, reply = self._queue.popleft()
            if self._failure is not None:
                _reject(reply, self._refusal())
                continue
            try:
                pending = self._pending_commands.decide(command)
            except Exception as refusal:
                # A command refused as a whole, or a mistake of ours: only its sender pays.
                _reject(reply, refusal)
                continue
            replies.append(reply)
            records += pending.records
        return replies, records

    def _fail(self, error: Exception, replies: list[asyncio.Future[Any]]) -> None:
        self._pending_commands.abort_uncommitted()
        failure = StorageError(f"the metadata log could not be written: {error}")
        logger.error("metadata change failed: commands=%d error=%s", len(replies), error)
        # After a mistake of ours nobody knows what the log holds now: no more changes either.
        if self._log.failed or not isinstance(error, StorageError | OSError):
            self._failure = failure
        for reply in replies:
            _reject(reply, failure)

    def _refusal(self) -> StorageError:
        if self._failure is not None:
            return StorageError(str(self._failure), hint="restart the broker once the disk is well")
        return StorageError("the controller is not running")

    async def _maybe_take_snapshot(self) -> None:
        """Once more records are in the log than a snapshot holds, replaying them is the dearer."""
        log, image = self._log, self.image
        due = log.records_since_snapshot >= self._snapshot_records_min
        if log.bytes_since_snapshot < SNAPSHOT_BYTES_MAX and not (
            due and log.records_since_snapshot >= image.record_count
        ):
            return
        try:
            await self._executor.run(lambda: log.take_snapshot(image))
        except StorageError as error:
            logger.error("snapshot failed: error=%s", error)
            if log.failed:
                self._failure = error
        except Exception:
            # The log holds everything; whoever asks for a change must not wait in vain.
            logger.exception("snapshot failed")


def _cancel(replies: "list[asyncio.Future[Any]]") -> None:
    for reply in replies:
        reply.cancel()


def _reject(reply: "asyncio.Future[Any]", error: BaseException) -> None:
    if not reply.done():
        reply.set_exception(error)
