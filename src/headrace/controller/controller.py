"""Decides on behalf of the cluster while this node leads the metadata quorum.

    submit ──> decide ──> append ┄┄> committed ──> apply ──> publish ──> reply

Commands that are submitted together are decided together and carried by one batch; several batches
may be in flight. What is committed is applied in order: by the leader as it was decided, by
anybody else as it is read from the log. A reply leaves only after its records are committed and
every publisher has seen the new image. A node that loses the lead forgets what is not committed; it
leads again only once it has applied all that was committed before.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from headrace.controller.commands import CompleteActivation
from headrace.controller.decision_context import DecisionContext
from headrace.controller.machine import MetadataMachine
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, StorageError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.core.runtime import Executor, Randomness
from headrace.machine.interface import Command, Reply
from headrace.machine.pending_commands import PendingBatch, PendingCommands
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.loader import MetadataLoader
from headrace.metadata.publisher import MetadataPublishers
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.records import MetadataRecord

RECORDS_PER_ROUND_MAX: Final = 10_000
"""A round takes no further command once it has this many records; its batch stays readable."""

BATCHES_IN_FLIGHT_MAX: Final = 8
"""Decided and not yet published: more would not be answered sooner, and each holds an image."""

FOLLOW_RETRY_SECONDS: Final = 1.0
"""When committed records are read again that the disk did not give."""

STOP_SECONDS_MAX: Final = 5.0
"""How long a stop waits for what was submitted: a disk may never take it."""

Waiter = asyncio.Future[Any]

logger = logging.getLogger(__name__)


class Controller:
    """Changes the metadata, and only through `submit`; listens to the quorum for the rest."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        quorum: MetadataQuorum,
        publishers: MetadataPublishers,
        *,
        randomness: Randomness,
        executor: Executor,
    ) -> None:
        self._quorum = quorum
        self._publishers = publishers
        self._executor = executor
        self._machine = MetadataMachine(DecisionContext(config, randomness))
        self._loader = MetadataLoader(Image(cluster_id))
        # While this node leads and has applied what it leads on from.
        self._pending: PendingCommands[Image, MetadataRecord, Waiter] | None = None
        self._epoch = LeaderEpoch(0)
        # Elected in this epoch, and active once all below this offset is applied.
        self._elected: tuple[LeaderEpoch, Offset] | None = None
        self._activation: asyncio.Future[None] | None = None
        self._queue: deque[tuple[Command[Any], Waiter]] = deque()
        self._round_handle: asyncio.Handle | None = None
        self._committed = Offset(0)
        self._released: list[PendingBatch[Image, MetadataRecord, Waiter]] = []
        self._wake = asyncio.Event()
        self._failure: HeadraceError | None = None
        # Something was committed that this version cannot apply.
        self._stands_still = False
        self._stopping = False
        self._runner: asyncio.Task[None] | None = None

    @property
    def image(self) -> Image:
        """The newest committed metadata, though publishers may not have seen it yet."""
        return self._loader.image

    # Life

    async def start(self) -> None:
        """Load the image and take part in the quorum; active when this returns."""
        snapshot = await self._quorum.open(self._loader.image)
        await self._executor.run(partial(self._load, snapshot))
        await self._publishers.publish(self._loader.image)
        self._publishers.on_added = self._wake.set
        loop = asyncio.get_running_loop()
        self._activation = loop.create_future()
        self._runner = loop.create_task(self._apply_all())
        await self._quorum.start(self)
        await self._activation

    def _load(self, snapshot: Image) -> None:
        self._loader.load_snapshot(snapshot)
        self._replay(self._quorum.high_watermark)

    async def stop(self) -> None:
        """Finish what was submitted, then stop; what cannot be finished is called off."""
        self._stopping = True
        self._wake.set()
        if self._runner is not None:
            while not self._runner.done():
                await asyncio.wait((self._runner,), timeout=STOP_SECONDS_MAX)
                if not self._runner.done() and self._waits_for_commit:
                    logger.warning(
                        "stopping with metadata that is not on disk: seconds=%d", STOP_SECONDS_MAX
                    )
                    self.kill()
                    await asyncio.wait((self._runner,))
                    return
            await self._runner
        await self._quorum.stop()

    def kill(self) -> None:
        """Stop at once, as the death of the process would: nothing is written or answered."""
        self._stopping = True
        self._quorum.kill()
        if self._round_handle is not None:
            self._round_handle.cancel()
        if self._runner is not None:
            self._runner.cancel()
        _cancel(waiter for batch in self._released for waiter, _ in batch.replies)
        _cancel(self._drop_uncommitted())
        _cancel(self._drop_queued())

    # Commands

    async def submit(self, command: Command[Reply]) -> Reply:
        """Carry out `command` and return its answer once that would survive a power cut.

        Raises NOT_CONTROLLER while this node does not lead, `StorageError` (retriable) when the
        disk fails, and `ApiError` where a command as a whole is refused. Commands are decided in
        the order of the calls.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append((command, reply))
        self._schedule_round()
        return await reply

    def _refusal(self) -> HeadraceError | None:
        failure = self._failure or self._quorum.failure
        if failure is not None:
            return StorageError(str(failure), hint="restart the broker once the disk is well")
        if self._stopping or self._runner is None:
            return StorageError("the controller is not running")
        if self._pending is None:
            return _not_controller()
        return None

    def _schedule_round(self) -> None:
        """Soon: what is submitted in this turn of the loop shares a batch."""
        if self._round_handle is None and self._queue:
            self._round_handle = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        """Decide what is queued and append it."""
        self._round_handle = None
        pending = self._pending
        if pending is None:
            return
        if pending.batches_in_flight + len(self._released) >= BATCHES_IN_FLIGHT_MAX:
            return  # goes on when something is committed and published
        next_offset = self._quorum.end_offset
        if pending.speculative.offset + 1 != next_offset:
            # Records of the quorum itself count in the log, too.
            moved = replace(pending.speculative, offset=Offset(next_offset - 1), epoch=self._epoch)
            pending.advance(moved)
        while self._queue and len(pending.decided) < RECORDS_PER_ROUND_MAX:
            command, reply = self._queue.popleft()
            try:
                pending.decide(command, reply)
            except Exception as refusal:
                # A command refused as a whole, or a mistake of ours: only its sender pays.
                _reject((reply,), refusal)
        try:
            pending.appended(self._append(pending.decided, next_offset))
        except Exception as error:
            _reject(pending.abort(), error)
            self._wake.set()  # a stop may wait for them
        self._release(pending)
        self._schedule_round()

    def _append(self, records: Sequence[MetadataRecord], next_offset: Offset) -> Offset:
        if not records:
            return next_offset
        end = self._quorum.append(self._epoch, records)
        if end != next_offset + len(records):
            # Broker epochs were made of the offsets that records were believed to get.
            self._failure = StorageError(
                f"records for offset {next_offset} ended at {end}, which is a mistake of ours"
            )
            raise self._failure
        return end

    def _release(self, pending: PendingCommands[Image, MetadataRecord, Waiter]) -> None:
        released = pending.commit(self._committed)
        if released:
            self._released += released
            self._wake.set()

    # What the quorum says

    def committed(self, offset: Offset) -> None:
        self._committed = offset
        if self._pending is not None:
            self._release(self._pending)
            self._schedule_round()
        self._wake.set()

    def elected(self, epoch: LeaderEpoch) -> None:
        self._elected = epoch, self._quorum.end_offset
        self._wake.set()

    def resigned(self, epoch: LeaderEpoch) -> None:
        logger.info("controller resigns: epoch=%d", epoch)
        self._elected = None
        _reject(self._drop_uncommitted(), _not_controller())
        self._pending = None
        _reject(self._drop_queued(), _not_controller())
        self._wake.set()

    def append_failed(self, error: StorageError) -> None:
        _reject(self._drop_uncommitted(), error)
        refusal = self._refusal()
        if refusal is not None:
            _reject(self._drop_queued(), refusal)
        self._wake.set()

    def _drop_uncommitted(self) -> list[Waiter]:
        return [] if self._pending is None else self._pending.abort()

    def _drop_queued(self) -> list[Waiter]:
        waiters = [waiter for _, waiter in self._queue]
        self._queue.clear()
        return waiters

    # What is committed

    async def _apply_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._publishers.publish(self.image)  # to those that were added
            while self._released or self._is_behind:
                await self._apply_some()
            self._activate_if_caught_up()
            if self._stopping and self._is_idle:
                return

    @property
    def _is_behind(self) -> bool:
        """Whether there is something to read from the log, which the active one need not."""
        return (
            self._pending is None
            and not (self._stands_still or self._stopping)
            and self._loader.end_offset < self._committed
        )

    @property
    def _waits_for_commit(self) -> bool:
        return self._pending is not None and not self._pending.idle

    @property
    def _is_idle(self) -> bool:
        return not (self._waits_for_commit or self._queue or self._released)

    async def _apply_some(self) -> None:
        """First what was decided here: whatever is read from the log comes behind it."""
        released, self._released = self._released, []
        try:
            if released:
                delta = self._adopt(released)
            else:
                delta = await self._follow()
            if delta is not None:
                await self._publishers.publish(self.image, delta)
        except asyncio.CancelledError:
            _cancel(waiter for batch in released for waiter, _ in batch.replies)
            raise
        except Exception as error:
            logger.exception("committed metadata could not be applied")
            self._failure = StorageError(f"committed metadata could not be applied: {error}")
            _reject((waiter for batch in released for waiter, _ in batch.replies), self._failure)
        for batch in released:
            for waiter, reply in batch.replies:
                if not waiter.done():
                    waiter.set_result(reply)
        self._schedule_round()

    def _adopt(self, released: list[PendingBatch[Image, MetadataRecord, Waiter]]) -> Delta | None:
        records = [record for batch in released for record in batch.records]
        return self._loader.adopt(released[-1].state, records) if records else None

    async def _follow(self) -> Delta | None:
        try:
            return await self._executor.run(partial(self._replay, self._committed))
        except Exception as error:
            activation = self._activation
            if activation is not None and not activation.done():
                # Whoever starts this node waits, and has nothing to serve without it.
                self._stands_still = True
                activation.set_exception(error)
                return None
            if isinstance(error, StorageError):
                logger.error(
                    "metadata cannot be read, will try again: offset=%d error=%s",
                    self.image.offset,
                    error,
                )
                await asyncio.sleep(FOLLOW_RETRY_SECONDS)
                return None
            # Requests are answered from what is known; to go on without it would be to guess, and
            # to lead without it would be to decide on a guess.
            self._stands_still = True
            logger.error(
                "metadata cannot be followed any further: offset=%d error=%s",
                self.image.offset,
                error,
                # Whatever else it may be is a mistake of ours and shown whole.
                exc_info=None if isinstance(error, HeadraceError) else error,
            )
            return None

    def _replay(self, end: Offset) -> Delta:
        return self._loader.replay(self._quorum.read(self._loader.end_offset, end))

    def _activate_if_caught_up(self) -> None:
        if self._elected is None:
            return
        epoch, end = self._elected
        if self._loader.end_offset < end:
            return
        self._elected, self._epoch = None, epoch
        self._pending = PendingCommands(self._machine, self.image)
        logger.info("controller is active: epoch=%d offset=%d", epoch, self.image.offset)
        activation = self._activation
        if activation is None or activation.done():
            activation = asyncio.get_running_loop().create_future()
            activation.add_done_callback(_note_failure)
        self._queue.appendleft((CompleteActivation(), activation))
        self._schedule_round()


def _not_controller() -> ApiError:
    return ApiError(
        ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum at the moment"
    )


def _note_failure(activation: Waiter) -> None:
    if not activation.cancelled() and activation.exception() is not None:
        logger.warning("controller was not activated: error=%s", activation.exception())


def _cancel(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.cancel()


def _reject(waiters: Iterable[Waiter], error: BaseException) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
