"""The readers behind `spark.read` and `spark.readStream`.

Planning happens on the driver, in one process that lives as long as a stream; reading happens in
tasks, each with connections of its own. Readers are pickled, so nothing is opened before it is
used.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client import Client, TopicPartition
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.spark.dead_letters import DeadLetters
from headrace.spark.fetch import fetch
from headrace.spark.offset_resolver import OffsetResolver, report_loss
from headrace.spark.offsets import (
    JsonOffsets,
    Offsets,
    Range,
    divided,
    limited,
    losses,
    new_offsets,
    offsets_from,
    packed,
    ranges_between,
    to_json,
    waits_for_more,
)
from headrace.spark.options import SourceOptions
from headrace.spark.rows import RowBuilder
from headrace.spark.watermarks import late_before_ms
from headrace.spark.workers import freeze_imports

logger = logging.getLogger(__name__)
# Offsets of a group without members expire, in a week as brokers are set up and sooner in some: a
# stream that waits says again where it is.
_COMMIT_AGAIN_MS = 3_600_000


class CheckpointLost(HeadraceError):
    """A query starts anew where another one of its name has been before."""

    code = ErrorCode.INVALID_REQUEST


class TopicRanges(InputPartition):
    """What one task reads: stretches of one or more partitions."""

    def __init__(self, ranges: Sequence[Range], late_before_ms: int | None = None) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.late_before_ms = late_before_ms


def plan(
    ranges: Sequence[Range], options: SourceOptions, late_before_ms: int | None = None
) -> list[TopicRanges]:
    """Divide ranges into tasks."""
    most = options.records_per_partition_max
    cut = divided(ranges, options.partitions_min, most)
    tasks_min = max(options.parallelism or os.cpu_count() or 1, options.partitions_min or 1)
    return [TopicRanges(task, late_before_ms) for task in packed(cut, tasks_min, most)]


def read(task: TopicRanges, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The records of a task as Arrow batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    freeze_imports()
    dead_letter_topic, late = options.values.dead_letter_topic, task.late_before_ms
    with Client(options.client) as client:
        if dead_letter_topic is None:
            maker = RowBuilder(arrow, options.values, late_before_ms=late)
            for fetched in fetch(client, options, task.ranges):
                yield from maker.batches(fetched)
            return
        with DeadLetters(options.client, dead_letter_topic) as dead_letters:
            maker = RowBuilder(arrow, options.values, dead_letters.send, late)
            for fetched in fetch(client, options, task.ranges):
                yield from maker.batches(fetched)


class BatchReader(DataSourceReader):
    """Everything between two places, each found when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options, resolver = self._options, OffsetResolver(self._options)
        try:
            start = resolver.resolve(options.starting, "starting")
            end = resolver.resolve(options.ending, "ending")
            first, last = resolver.earliest(list(start)), resolver.latest(list(start))
        finally:
            resolver.close()
        ranges = []
        for partition in sorted(start):
            low, high = start[partition], end.get(partition, start[partition])
            kept_low, kept_high = max(low, first[partition]), min(high, last[partition])
            if low < high and (kept_low, kept_high) != (low, high):
                report_loss(
                    f"offsets {low} to {high - 1} of {partition} are wanted, but it has only "
                    f"{first[partition]} to {last[partition] - 1}",
                    fail=options.fail_on_data_loss,
                )
            ranges.append(Range(partition, kept_low, kept_high))
        planned: list[InputPartition] = [*plan(ranges, options)]
        return planned or [TopicRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRanges)
        return read(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: offsets are dicts in the shape of the connector's checkpoints.

    A checkpoint has where each batch ended, and so where the next one began, but not where the
    first one began: Spark asks for the initial offset again when batch 0 runs again. "Latest" is
    then another place, and so is "earliest" once retention has been there; what lies in between
    would be lost, and nobody would know. Unless its start is given as offsets, a stream therefore
    has an empty first batch, whose end is its beginning.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._offset_resolver = OffsetResolver(options)
        self._ends: dict[TopicPartition, int] = {}
        self._target: dict[TopicPartition, int] | None = None
        self._published: Offsets | None = None
        self._published_ms = float("-inf")
        self._triggered_ms = float("-inf")
        self._initial: JsonOffsets | None = None
        self._has_begun = False

    def initialOffset(self) -> JsonOffsets:  # noqa: N802, as Spark names it
        self._initial = to_json(self._offset_resolver.resolve(self._options.starting, "starting"))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # One limit is all that can be told; the other is looked up when it is applied.
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._offset_resolver.latest_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Where the next batch ends; `start` is where the last finished one ended."""
        begun = offsets_from(start)
        if self._begins(start):
            self._refuse_lost_checkpoint(begun)
            if self._options.start_moves:
                self._ends = self._offset_resolver.latest(
                    list(begun)
                )  # lag is told from the start on
                return to_json(begun)
        self._commit_offsets(begun)
        self._ends = self._offset_resolver.latest(self._offset_resolver.partitions(before=begun))
        for topic in self._offset_resolver.recreated_topics():
            report_loss(
                f"topic {topic!r} was deleted and made anew, so that its offsets mean other "
                "records; to read them from their start, begin with a new checkpoint",
                fail=self._options.fail_on_data_loss,
            )
        end = self._ends
        if self._target is not None:
            # What came after the trigger is for the next run; what is gone cannot be reached.
            end = {each: self._target[each] for each in self._target if each in self._ends}
        if isinstance(limit, ReadAllAvailable):
            return to_json(end)
        if self._waits(begun, end):
            return to_json(begun)
        most = self._options.offsets_per_trigger_max
        if most is not None:
            fresh = self._offset_resolver.earliest([each for each in end if each not in begun])
            end = limited({**begun, **fresh}, end, most)
        return to_json(end)

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        return to_json(self._ends) if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, finish = offsets_from(start), offsets_from(end)
        if self._begins(start) and self._options.start_moves:
            return []  # batch 0 again: it was empty, wherever the topic starts and ends by now
        fresh = self._offset_resolver.earliest([each for each in finish if each not in begin])
        for what in losses(begin, finish, fresh):
            report_loss(what, fail=self._options.fail_on_data_loss)
        checkpoint = self._options.watermark_checkpoint
        late = None if checkpoint is None else late_before_ms(checkpoint, end)
        return plan(ranges_between(begin, finish, fresh), self._options, late)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRanges)
        return read(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Comes one batch late and never for the last: `latestOffset` publishes instead."""

    def stop(self) -> None:
        self._offset_resolver.close()

    def _begins(self, start: dict[str, Any]) -> bool:
        """Whether this is the first step of a query that has finished no batch."""
        first = not self._has_begun and start == self._initial
        self._has_begun = True
        return first

    def _refuse_lost_checkpoint(self, start: Offsets) -> None:
        """A query without a past, but with offsets in its group, has had one and lost it."""
        group = self._options.commit_group
        if group is None:
            return
        there = self._offset_resolver.committed(group)
        moved = [each for each in sorted(start) if there.get(each, start[each]) != start[each]]
        if not moved:
            return
        at = json.dumps(
            to_json({**start, **{each: there[each] for each in start if each in there}})
        )
        raise CheckpointLost(
            f"group {group!r} has finished {moved[0]} up to offset {there[moved[0]]}, and this "
            f"query has no checkpoint and would start at {start[moved[0]]}. If the checkpoint was "
            f"lost, bring it back or start where the group stands, with startingOffsets={at}; to "
            f"start anew, delete the group or choose another"
        )

    def _waits(self, begun: Offsets, end: Offsets) -> bool:
        least = self._options.offsets_per_trigger_min
        if least is None or self._target is not None:  # a run that must end waits for nothing
            return False
        now_ms = time.monotonic() * 1000
        waited_ms = now_ms - self._triggered_ms
        delay_ms = self._options.trigger_delay_ms_max
        if waits_for_more(new_offsets(begun, end), least, waited_ms, delay_ms):
            return True
        self._triggered_ms = now_ms
        return False

    def _commit_offsets(self, finished: Offsets) -> None:
        group = self._options.commit_group
        if group is None:
            return
        age_ms = time.monotonic() * 1000 - self._published_ms
        if finished == self._published and age_ms < _COMMIT_AGAIN_MS:
            return
        try:
            self._offset_resolver.commit(group, finished)
        except HeadraceError as error:
            if self._published is None:
                raise  # the first time it is the option that is wrong
            logger.warning("offsets were not published: group=%s error=%s", group, error)
            return
        self._published, self._published_ms = finished, time.monotonic() * 1000
