"""Compaction of the topics that ask for it: which log next, and putting the result in place."""

import logging
from typing import NamedTuple

from headrace.core.errors import HeadraceError, StorageError
from headrace.core.runtime import Clock, Executor
from headrace.log.compaction.checkpoint import CleanerCheckpoint
from headrace.log.compaction.plan import CompactionPlan, plan_compaction
from headrace.log.compaction.request import CompactionRequest, SegmentRange
from headrace.log.compaction.runner import Compactor
from headrace.log.compaction.swap import apply_replacements
from headrace.replication.partition import Partition
from headrace.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class CompactionJob(NamedTuple):
    partition: Partition
    plan: CompactionPlan

    @property
    def urgency(self) -> tuple[bool, float]:
        """Whoever waited too long goes first, then whoever has most to gain."""
        return self.plan.overdue, self.plan.dirty_ratio


class LogCleanerCounts:
    """What compaction has done since the start, for the metrics."""

    __slots__ = ("compactions", "failures", "removed_bytes", "removed_records")

    def __init__(self) -> None:
        self.compactions = 0
        self.failures = 0
        self.removed_bytes = 0
        self.removed_records = 0


class LogCleaner:
    """One compaction at a time; the compactor itself works outside the event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        compactor: Compactor,
        checkpoint: CleanerCheckpoint,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._replicas = replicas
        self._compactor = compactor
        self._checkpoint = checkpoint
        self._clock = clock
        self._executor = executor
        self._topic_ids = {each.id: each.topic_id for each in replicas}
        self.counts = LogCleanerCounts()

    async def clean_all(self) -> None:
        """Compact until no log is worth it."""
        self._drop_removed_partitions()
        tried: set[Partition] = set()
        await self._finish_replacements(tried)
        while (job := self._most_urgent(tried)) is not None:
            tried.add(job.partition)
            try:
                await self._clean(job)
            except Exception as error:  # whatever it was: the other logs have their turn
                if job.partition.closed:
                    continue
                self._report(job.partition, error)

    def _drop_removed_partitions(self) -> None:
        """The checkpoint knows names only: what it says of a deleted topic is not true of another
        that was made under its name before we looked."""
        directory = self._replicas.directory
        topic_ids = {each.id: each.topic_id for each in self._replicas}
        anew = {
            partition
            for partition, topic_id in topic_ids.items()
            if self._topic_ids.get(partition, topic_id) != topic_id
        }
        self._topic_ids = topic_ids
        self._checkpoint.retain({*directory.logs, *directory.partitions_on_disk} - anew)

    async def _finish_replacements(self, tried: set[Partition]) -> None:
        for partition in [each for each in self._replicas if each.log.is_half_replaced]:
            try:
                await self._executor.run(partition.log.finish_replacement)
            except Exception as error:
                tried.add(partition)
                if not partition.closed:
                    self._report(partition, error)

    def _most_urgent(self, tried: set[Partition]) -> CompactionJob | None:
        now_ms = self._clock.now_ms()
        jobs = []
        for partition in self._replicas:
            if partition in tried or "compact" not in partition.log.config.cleanup_policy:
                continue
            try:
                plan = self._plan(partition, now_ms)
            except Exception as error:
                tried.add(partition)
                self._report(partition, error)
                continue
            if plan is not None:
                jobs.append(CompactionJob(partition, plan))
        return max(jobs, key=lambda job: job.urgency, default=None)

    def _plan(self, partition: Partition, now_ms: int) -> CompactionPlan | None:
        log = partition.log
        log.roll_if_due(now_ms)
        return plan_compaction(
            log.segment_facts,
            log.config,
            first_dirty_offset=self._checkpoint.first_dirty_offset(
                partition.id, log.log_start_offset, log.log_end_offset
            ),
            first_unstable_offset=log.compactable_offset(partition.last_stable_offset),
            now_ms=now_ms,
        )

    def _report(self, partition: Partition, error: Exception) -> None:
        self.counts.failures += 1
        logger.error(
            "compaction failed: partition=%s error=%s",
            partition.id,
            error,
            exc_info=None if isinstance(error, HeadraceError) else error,
        )

    async def _clean(self, job: CompactionJob) -> None:
        partition, plan = job
        log = partition.log
        request = CompactionRequest(
            log.directory,
            tuple(SegmentRange(s.base_offset, s.next_offset, s.size) for s in plan.segments),
            self._clock.now_ms(),
            log.config.delete_retention_ms,
            log.config.segment_bytes,
            log.config.segment_index_bytes,
            log.config.index_interval_bytes,
            tuple(log.active_producers().items()),
            self._replicas.config.log_cleaner_dedupe_buffer_size,
        )
        result = await self._executor.run(lambda: self._compactor.compact(request))
        if partition.closed:
            raise StorageError("the topic was deleted meanwhile")
        if not await self._executor.run(lambda: apply_replacements(log, result)):
            # Retention or a truncation was quicker; what is left stays dirty.
            return
        self._checkpoint.update(partition.id, result.end_offset)
        self.counts.compactions += 1
        self.counts.removed_records += result.records_read - result.records_kept
        self.counts.removed_bytes += result.bytes_read - result.bytes_written
        logger.info(
            "compacted: partition=%s end_offset=%d records_before=%d records_after=%d"
            " bytes_before=%d bytes_after=%d",
            partition.id,
            result.end_offset,
            result.records_read,
            result.records_kept,
            result.bytes_read,
            result.bytes_written,
        )
