"""The rhythm of the duties, and what one that fails costs the others. In virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

from headrace.core.broker_configs import BrokerConfig
from headrace.core.runtime import Clock
from headrace.node.log_cleaner import LogCleaner
from headrace.node.log_maintenance import CHECKPOINT_BYTES_MAX, LogMaintenance
from headrace.replication.partition import Partition
from headrace.replication.replica_manager import ReplicaManager
from tests.simulation.loop import VirtualLoop
from tests.support.metadata import InlineExecutor

NEVER = 10**9


def configured(**settings: int) -> BrokerConfig:
    """With these keys, underscores for dots; what is not named never happens."""
    periods = {
        "log.flush.offset.checkpoint.interval.ms": str(NEVER),
        "log.retention.check.interval.ms": str(NEVER),
        "log.cleaner.backoff.ms": str(NEVER),
        "replica.high.watermark.checkpoint.interval.ms": str(NEVER),
    }
    given = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return BrokerConfig.from_static({**periods, **given})


class FakeLog:
    def __init__(self, name: str, broken: set[str]) -> None:
        self.name, self.broken = name, broken
        self.failure = None
        self.looks = 0
        self.flush_is_due = False

    def apply_retention(self, _now_ms: int, _high_watermark: int) -> list[tuple[str, str]]:
        if self.name in self.broken:
            raise RuntimeError(f"a mistake about {self.name}")
        self.looks += 1
        return []

    def expire_producers(self, _now_ms: int) -> None:
        pass

    def flush_due(self, _now_ms: int) -> bool:
        return self.flush_is_due


class FakePartition:
    closed = False
    high_watermark = 0

    def __init__(self, name: str, broken: set[str]) -> None:
        self.id = name
        self.log = FakeLog(name, broken)


class FakeBroker:
    """The duties with everything they touch; `broken` names what raises."""

    def __init__(self, **settings: int) -> None:
        self.broken: set[str] = set()
        self.config = configured(**settings)
        self.partitions = [
            FakePartition(name, self.broken) for name in ("first", "second", "third")
        ]
        self.directory = self
        self.bytes_since_checkpoint = 1
        self.checkpoints = self.cleanings = self.removals = 0
        self.high_watermark_checkpoints = 0
        self.flushed: list[str] = []

    def __iter__(self) -> Iterator[FakePartition]:
        return iter(self.partitions)

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0

    async def retry_never_opened(self) -> None:
        """Nothing is."""

    async def checkpoint_high_watermarks(self) -> None:
        self.high_watermark_checkpoints += 1

    def checkpoint(self) -> None:
        self.checkpoints += 1
        if "checkpoint" in self.broken:
            raise RuntimeError("no checkpoint")

    def remove_deleted(self, _now_ms: int) -> None:
        self.removals += 1

    async def clean_all(self) -> None:
        self.cleanings += 1
        if "cleaning" in self.broken:
            raise RuntimeError("no cleaning")

    def flush(self, partition: Partition) -> None:
        name = str(partition.id)
        self.flushed.append(name)
        if name in self.broken:
            raise RuntimeError("no flush")

    def live(self, scenario: Callable[[LogMaintenance], Coroutine[Any, Any, None]]) -> None:
        loop = VirtualLoop()

        async def life() -> None:
            duties = LogMaintenance(
                cast(ReplicaManager, self),
                cast(LogCleaner, self),
                cast(Clock, self),
                InlineExecutor(),
                self.flush,
            )
            running = asyncio.create_task(duties.run())
            await scenario(duties)
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        try:
            loop.run_until_complete(life())
        finally:
            loop.close()


def test_high_watermarks_are_written_down_as_often_as_asked_for() -> None:
    broker = FakeBroker(replica_high_watermark_checkpoint_interval_ms=5_000)

    async def scenario(_: LogMaintenance) -> None:
        await asyncio.sleep(21)
        assert broker.high_watermark_checkpoints == 4

    broker.live(scenario)


def test_a_checkpoint_comes_as_often_as_asked_for_and_no_more_often() -> None:
    broker = FakeBroker(log_flush_offset_checkpoint_interval_ms=60_000)

    async def scenario(_: LogMaintenance) -> None:
        await asyncio.sleep(59)
        assert broker.checkpoints == 0
        await asyncio.sleep(2)
        assert broker.checkpoints == 1

    broker.live(scenario)


def test_much_that_was_written_brings_a_checkpoint_forward() -> None:
    broker = FakeBroker(log_flush_offset_checkpoint_interval_ms=60_000)
    broker.bytes_since_checkpoint = CHECKPOINT_BYTES_MAX

    async def scenario(_: LogMaintenance) -> None:
        await asyncio.sleep(1)
        assert broker.checkpoints == 1

    broker.live(scenario)


def test_a_shorter_period_holds_for_the_pause_under_way() -> None:
    broker = FakeBroker()

    async def scenario(duties: LogMaintenance) -> None:
        await asyncio.sleep(10)
        broker.config = configured(
            log_flush_offset_checkpoint_interval_ms=1_000,
            log_retention_check_interval_ms=1_000,
            log_cleaner_backoff_ms=1_000,
        )
        duties.config_changed()
        await asyncio.sleep(1)
        assert min(broker.checkpoints, broker.cleanings, broker.removals) >= 1

    broker.live(scenario)


def test_a_task_that_fails_is_tried_again_and_costs_the_others_nothing() -> None:
    broker = FakeBroker(
        log_flush_offset_checkpoint_interval_ms=1_000,
        log_retention_check_interval_ms=1_000,
        log_cleaner_backoff_ms=1_000,
    )
    broker.broken |= {"checkpoint", "cleaning", "second"}
    for partition in broker.partitions:
        partition.log.flush_is_due = True

    async def scenario(duties: LogMaintenance) -> None:
        await asyncio.sleep(10.5)
        assert broker.checkpoints >= 8
        assert broker.cleanings >= 8
        assert [partition.log.looks >= 8 for partition in broker.partitions] == [True, False, True]
        assert broker.removals >= 8
        assert broker.flushed.count("third") >= 8
        assert duties.counts.failures > 0

    broker.live(scenario)
