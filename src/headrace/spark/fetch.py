"""Read ranges of partitions to their ends, undecoded, with the next fetch in flight.

Offsets inside a range may have no records: transaction markers, aborted records and compaction
leave gaps, and that is no loss. What lies below the start of the log is gone, and is.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.client import (
    EARLIEST,
    LATEST,
    Client,
    FetchedChunk,
    Reader,
    ReaderSettings,
    TopicPartition,
)
from headrace.client.core.lookups import MissingTopic, refresh_metadata
from headrace.core.errors import ErrorCode, HeadraceError, OffsetOutOfRange
from headrace.spark.offset_resolver import report_loss
from headrace.spark.offsets import Range
from headrace.spark.options import SourceOptions

logger = logging.getLogger(__name__)
# After this long without records, look whether there are any to come.
_QUIET_MS = 1_000
# A short range in a long log: fetch about what it holds, and not what lies behind it.
_BYTES_PER_ROW = 256
_FETCH_BYTES_MIN = 64 * 1024


@dataclass(frozen=True, slots=True)
class Fetched:
    """Chunks as they came, and for each the offsets that are wanted of it."""

    chunks: Sequence[FetchedChunk]
    bounds: Sequence[tuple[int, int]]


class FetchTimedOut(HeadraceError):
    """Records that must be there did not come in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


def fetch(client: Client, options: SourceOptions, ranges: Sequence[Range]) -> Iterator[Fetched]:
    """Everything within the ranges; those of different partitions are read together."""
    for wanted in _rounds(ranges):
        yield from _Fetch(client, options, wanted).run()


def _rounds(ranges: Sequence[Range]) -> list[dict[TopicPartition, Range]]:
    """A reader has one position per partition, so ranges of the same one take turns."""
    rounds: list[dict[TopicPartition, Range]] = []
    for each in sorted(ranges):
        for taken in rounds:
            if each.partition not in taken:
                taken[each.partition] = each
                break
        else:
            rounds.append({each.partition: each})
    return rounds


class _Fetch:
    """The ranges still to be read, and the reader that is on its way through them."""

    def __init__(
        self, client: Client, options: SourceOptions, wanted: dict[TopicPartition, Range]
    ) -> None:
        self._client = client
        self._options = options
        self._left = dict(wanted)
        self._reader = self._read({each: found.start for each, found in wanted.items()})

    def run(self) -> Iterator[Fetched]:
        try:
            yield from self._run()
        finally:
            self._reader.close()

    def _run(self) -> Iterator[Fetched]:
        heard_ms = self._client.requests.now_ms()
        while self._left:
            try:
                chunks = self._reader.fetch(min(_QUIET_MS, self._options.poll_timeout_ms))
            except OffsetOutOfRange:
                self._out_of_range()
                continue
            except MissingTopic:
                self._topics_gone()
                continue
            if chunks:
                heard_ms = self._client.requests.now_ms()
                yield self._taken(chunks)
            elif self._client.requests.now_ms() - heard_ms >= self._options.poll_timeout_ms:
                raise self._timed_out()
            else:
                self._probe_for_end()

    def _read(self, positions: dict[TopicPartition, int]) -> Reader:
        most = max((each.size for each in self._left.values()), default=0)
        wanted = max(most * _BYTES_PER_ROW, _FETCH_BYTES_MIN)
        settings = self._options.reader
        if wanted < settings.partition_bytes_max:
            settings = replace(settings, partition_bytes_max=wanted)
        return self._client.reader(positions, settings)

    def _taken(self, chunks: list[FetchedChunk]) -> Fetched:
        wanted = [chunk for chunk in chunks if chunk.partition in self._left]
        bounds = [(each.fetch_offset, self._left[each.partition].end) for each in wanted]
        for partition in {chunk.partition for chunk in wanted}:
            if self._reader.position(partition) >= self._left[partition].end:
                self._finish(partition)
        return Fetched(wanted, bounds)

    def _finish(self, partition: TopicPartition) -> None:
        del self._left[partition]
        self._reader.pause(partition)

    def _timed_out(self) -> FetchTimedOut:
        partition = min(self._left)
        return FetchTimedOut(
            f"no record of {partition} from offset {self._reader.position(partition)} on within "
            f"{self._options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)"
        )

    # -- what is not there

    def _probe_for_end(self) -> None:
        """Whether the rest of a range is a gap at the end of the log, with nothing to come.

        Each partition is asked alone: only then does an empty answer say that it has nothing,
        and only its own answer tells where the log ends now.
        """
        committed = self._options.reader.isolation == "read_committed"
        ends = self._ends(list(self._left))
        for partition, wanted in list(self._left.items()):
            position = self._reader.position(partition)
            if ends[partition] < wanted.end and ends[partition] <= position:
                self._lost(f"{partition} ends at offset {ends[partition]}, before {wanted.end}")
                self._finish(partition)
                continue
            alone = ReaderSettings(
                isolation="read_committed" if committed else "read_uncommitted",
                fetch_wait_ms_max=0,
            )
            with self._client.reader({partition: position}, alone) as probe:
                try:
                    found = probe.fetch(_QUIET_MS)
                except HeadraceError:
                    continue  # the reader will meet the same, and is the one to judge
                if not found and probe.high_watermark(partition) >= wanted.end:
                    logger.debug("no records are left: partition=%s offset=%d", partition, position)
                    self._finish(partition)

    def _out_of_range(self) -> None:
        starts = self._client.admin.list_offsets(dict.fromkeys(self._left, EARLIEST))
        ends = self._ends(list(self._left))
        for partition, wanted in list(self._left.items()):
            position, start = self._reader.position(partition), starts[partition].offset
            if position < start:
                upto = min(start, wanted.end)
                self._lost(f"offsets {position} to {upto - 1} of {partition} are gone")
                if start >= wanted.end:
                    self._finish(partition)
                else:
                    self._reader.seek(partition, start)
            elif position > ends[partition]:
                self._lost(
                    f"{partition} ends at offset {ends[partition]}, before {position}: was the "
                    "topic made anew?"
                )
                self._finish(partition)

    def _topics_gone(self) -> None:
        topics = sorted({partition.topic for partition in self._left})
        response = self._client.requests.run(
            refresh_metadata(self._client.requests.session, topics)
        )
        there = {
            TopicPartition(topic.name or "", part.partition_index)
            for topic in response.topics
            if not topic.error_code
            for part in topic.partitions
        }
        gone = sorted(set(self._left) - there)
        if gone:
            self._lost(f"partition {gone[0]} is gone")
        for partition in gone:
            del self._left[partition]
        positions = {each: self._reader.position(each) for each in self._left}
        self._reader.close()
        self._reader = self._read(positions)

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self._options.reader.isolation == "read_committed"
        specs = dict.fromkeys(partitions, LATEST)
        found = self._client.admin.list_offsets(specs, read_committed=committed)
        return {partition: listed.offset for partition, listed in found.items()}

    def _lost(self, what: str) -> None:
        report_loss(what, fail=self._options.fail_on_data_loss)
