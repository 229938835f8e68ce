"""Open the segments of a partition: quickly after a clean stop, carefully after a crash.

    clean     file names, one size per segment, and the few batches behind the last index entry
    crash     every batch past the recovery point: length, magic, CRC, offsets and epochs that
              do not go back. The first one that is not right ends the log: the rest is a torn
              write, or was never acknowledged as flushed. Whole segments behind it are set
              aside (`.stray`), never removed: what they hold may be wanted.

What lies before the recovery point was synced and is trusted; its indexes too, as far as their
entries agree with the batches they point to.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.files import FileSystem
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.compaction.swap import recover_swaps
from headrace.log.config import MAX_INT32, LogConfig
from headrace.log.leader_epoch_cache import add_epochs
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.names import (
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    STRAY_SEGMENT,
    TIME_INDEX,
    parse_offset,
)
from headrace.log.producer_snapshot import load_snapshot
from headrace.log.producer_state import ProducerStates
from headrace.log.segment import Segment
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.header import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    parse_header,
)

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 << 20


@dataclass(slots=True)
class Opened:
    """What was found. State that is None is loaded when it is first needed."""

    segments: list[Segment] = field(default_factory=list)
    snapshots: list[Offset] = field(default_factory=list)
    producers: ProducerStates | None = None
    epochs: LeaderEpochs | None = None
    reindexed: list[Segment] = field(default_factory=list)
    """Closed segments whose indexes were made anew and are not on disk."""
    intact: bool = False
    """Closed properly and found so: all of it is on disk."""


def open_segments(
    files: FileSystem,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int | None,
    clean: bool,
) -> Opened:
    """The segments that are in `directory`; none if it holds no data."""
    bases, snapshots = _sort_names(files, directory)
    opened = Opened(snapshots=snapshots)
    if not bases:
        return opened
    # Each ends where the next begins; where the last one ends is yet to be found.
    for base, following in zip(bases, [*bases[1:], bases[-1]], strict=True):
        opened.segments.append(Segment.existing(files, directory, base, following))
    try:
        _check(files, directory, config, opened, recovery_point, clean=clean)
    except BaseException:
        # Nobody will use them; the next attempt opens its own.
        for segment in opened.segments:
            segment.close()
        raise
    return opened


def _check(
    files: FileSystem,
    directory: str,
    config: LogConfig,
    opened: Opened,
    recovery_point: int | None,
    *,
    clean: bool,
) -> None:
    if clean:
        try:
            opened.segments[-1].resume(config.index_interval_bytes)
            opened.intact = True
            return
        except CorruptBatch as error:
            logger.warning(
                "a cleanly closed log does not end well: directory=%s error=%s", directory, error
            )
            recovery_point = min(recovery_point or 0, opened.segments[-1].base_offset)
    _Recovery(files, directory, config, opened, recovery_point).run()


def _sort_names(files: FileSystem, directory: str) -> tuple[list[Offset], list[Offset]]:
    """Base offsets and snapshot offsets; leftovers of interrupted work are removed."""
    bases: list[Offset] = []
    snapshots: list[Offset] = []
    companions: list[tuple[Offset, str]] = []
    names = files.list_directory(directory)
    if recover_swaps(files, directory, names):
        names = files.list_directory(directory)
    for name in names:
        if name.endswith((DELETED, ".tmp")):
            files.remove(f"{directory}/{name}")
        elif (base := parse_offset(name, LOG)) is not None:
            bases.append(base)
        elif (offset := parse_offset(name, SNAPSHOT)) is not None:
            snapshots.append(offset)
        else:
            base = parse_offset(name, INDEX)
            base = parse_offset(name, TIME_INDEX) if base is None else base
            if base is not None:
                companions.append((base, name))
    known = set(bases)
    for base, name in companions:
        if base not in known:
            logger.warning("removing an index without data: path=%s", f"{directory}/{name}")
            files.remove(f"{directory}/{name}")
    return sorted(bases), sorted(snapshots)


class _Recovery:
    """One pass over what lies past the recovery point."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        config: LogConfig,
        opened: Opened,
        recovery_point: int | None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.opened = opened
        self.segments = opened.segments
        self.point = max(recovery_point or 0, self.segments[0].base_offset)
        self.point_is_known = recovery_point is not None
        self.next_offset: int = self.segments[0].base_offset

    def run(self) -> None:
        # The one that holds the last offset before the point, even if nothing in it is past it:
        # what a clean stop wrote to its indexes was not synced.
        before = [i for i, s in enumerate(self.segments) if s.base_offset < self.point]
        first = before[-1] if before else 0
        self.epochs = self._load_epochs(first)
        self.producers = self._load_producers(first)
        for number in range(first, len(self.segments)):
            if not self._recover(self.segments[number]) or self._hole_after(number):
                self._drop_after(number)
                break
        self.opened.reindexed = self.segments[first:-1]
        end = self.segments[-1].next_offset
        self.epochs.truncate_end(end)
        self.opened.epochs = self.epochs
        self.opened.producers = self.producers
        for offset in [s for s in self.opened.snapshots if s > end]:
            self.files.remove(f"{self.directory}/{offset:020d}{SNAPSHOT}")
            self.opened.snapshots.remove(offset)

    def _load_epochs(self, first: int) -> LeaderEpochs:
        epochs = LeaderEpochs.load(self.files, self.directory)
        trusted = [s for s in self.segments[: first + 1] if s.base_offset < self.point]
        if epochs is None or not self._epochs_fit(epochs, trusted):
            if trusted:
                logger.warning("rebuilding leader epochs: directory=%s", self.directory)
            epochs = LeaderEpochs()
            add_epochs(epochs, trusted, self.point)
        epochs.truncate_end(Offset(self.point))
        return epochs

    def _epochs_fit(self, epochs: LeaderEpochs, trusted: list[Segment]) -> bool:
        """Whether the table knows the epoch of the last batch before the recovery point."""
        for segment in reversed(trusted):
            position = segment.indexes.indexed_position(self.point - 1 - segment.base_offset)
            epoch = None
            try:
                for _, header in scan_headers(segment.file, position, segment.file.size()):
                    if header.base_offset >= self.point:
                        break
                    offset, epoch = header.base_offset, header.leader_epoch
            except CorruptBatch:
                pass  # the torn tail; the scan to come will deal with it
            if epoch is not None:
                return epochs.epoch_for_offset(Offset(offset)) == epoch
        return True

    def _load_producers(self, first: int) -> ProducerStates:
        """The states at the recovery point: a snapshot before it, and what came since."""
        for offset in reversed(self.opened.snapshots):
            if offset > self.point:
                continue
            states = load_snapshot(self.files, self.directory, offset)
            if states is not None:
                break
            self.opened.snapshots.remove(offset)
        else:
            states, offset = ProducerStates(), self.segments[0].base_offset
        replay(states, self.segments[: first + 1], offset, self.point)
        return states

    def _recover(self, segment: Segment) -> bool:
        """Check the segment from the recovery point on; False if its tail had to be cut."""
        size = segment.file.size()
        position = segment.rewind(self.point)
        self.next_offset = max(self.next_offset, segment.base_offset)
        end = self._scan(segment, position, size)
        if end == size:
            return True
        logger.warning(
            "cut a torn tail: segment=%s position=%d bytes=%d next_offset=%d",
            segment.path(),
            end,
            size - end,
            segment.next_offset,
        )
        segment.file.truncate(end)
        # A flush looks only at segments with new batches; this one may never get any.
        segment.file.sync()
        return False

    def _hole_after(self, number: int) -> bool:
        """Whether the next segment does not begin where this one ends.

        A segment is named after the log's end when it was created. Only compaction leaves holes,
        and it keeps away from what lies past the recovery point; so batches were lost here.
        """
        if number + 1 == len(self.segments) or not self.point_is_known:
            return False
        following = self.segments[number + 1].base_offset
        return following > self.point and following != self.segments[number].next_offset

    def _drop_after(self, number: int) -> None:
        """End the log here: the offsets of the segments behind it no longer connect.

        They are set aside and not removed: that they follow a cut says nothing against what is in
        them, and were the recovery point wrong, they would be all that is left.
        """
        for segment in self.segments[number + 1 :]:
            if segment.size:
                suffix = self._free_suffix(segment)
                logger.warning(
                    "setting aside a segment behind a cut: segment=%s bytes=%d renamed_to=%s",
                    segment.path(),
                    segment.size,
                    segment.path() + suffix,
                )
                segment.rename(suffix)
            else:
                for path in segment.rename(DELETED):
                    self.files.remove(path)
            segment.close()
        del self.segments[number + 1 :]

    def _free_suffix(self, segment: Segment) -> str:
        """One that no earlier recovery has given to a segment of this name."""
        suffix, count = STRAY_SEGMENT, 1
        while self.files.exists(segment.path() + suffix):
            count += 1
            suffix = f"{STRAY_SEGMENT}-{count}"
        return suffix

    def _scan(self, segment: Segment, position: int, size: int) -> int:
        """Add every good batch from `position` on; return where the last one ends."""
        point, interval, base = self.point, self.config.index_interval_bytes, segment.base_offset
        read, add_batch = segment.file.read, segment.add_batch
        next_offset, epochs, update = self.next_offset, self.epochs, self.producers.update
        wanted = CHUNK_BYTES
        while position < size:
            data = read(position, min(wanted, size - position))
            view = memoryview(data)
            length, at, wanted = len(data), 0, CHUNK_BYTES
            while length - at >= HEADER_SIZE:
                header = parse_header(data, at)
                batch_bytes = header.batch_length + LENGTH_OVERHEAD
                last_offset = header.base_offset + header.last_offset_delta
                if (
                    header.magic != MAGIC
                    or batch_bytes < HEADER_SIZE
                    or position + at + batch_bytes > size
                    or header.base_offset < next_offset
                    or last_offset < header.base_offset
                    or last_offset - base > MAX_INT32
                ):
                    return position + at
                if at + batch_bytes > length:
                    wanted = max(CHUNK_BYTES, batch_bytes)
                    break
                if last_offset >= point:
                    epoch = header.leader_epoch
                    if (
                        crc32c(view[at + ATTRIBUTES_AT : at + batch_bytes]) != header.crc
                        or epoch < epochs.latest
                    ):
                        return position + at
                    if epoch > epochs.latest:
                        epochs.start_epoch(LeaderEpoch(epoch), Offset(header.base_offset))
                    if header.producer_id >= 0:
                        update(header, last_offset)
                add_batch(position + at, batch_bytes, last_offset, header.max_timestamp, interval)
                next_offset = last_offset + 1
                at += batch_bytes
            if at == 0 and wanted == CHUNK_BYTES:
                return position  # fewer bytes than a header are left
            position += at
            self.next_offset = next_offset
        return position


def replay(states: ProducerStates, segments: Sequence[Segment], start: int, end: int) -> None:
    """Bring `states` from offset `start` to `end` by the headers of the batches between."""
    for segment in segments:
        passed = segment.next_offset <= start and segment is not segments[-1]
        if passed or segment.base_offset >= end or segment.size == 0:
            continue
        position = segment.indexes.indexed_position(start - segment.base_offset)
        try:
            for _, header in scan_headers(segment.file, position, segment.file.size()):
                if header.base_offset >= end:
                    break
                if header.producer_id >= 0 and header.last_offset >= start:
                    states.update(header, header.last_offset)
        except CorruptBatch:
            continue  # the torn tail of the last one; whoever scans it says so
