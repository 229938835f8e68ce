"""The metadata log and its snapshots on disk: load an image, append records, shorten.

    __cluster_metadata-0/
      00000000000000004011.log ................ batches of framed metadata records
      00000000000000004011-0000000003.checkpoint    everything below offset 4011
      00000000000000004711-0000000003.checkpoint    everything below offset 4711
      quorum-state ............................ the newest epoch, and the vote in it

One batch holds whole commands, so that a torn tail never leaves half of one. Everything here is
synchronous; the caller picks the thread.
"""

import logging
from collections.abc import Iterator, Sequence
from uuid import UUID

from headrace.core.errors import CorruptBatch, StartupRefused, StorageError
from headrace.core.files import FileSystem
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.core.runtime import Clock
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.metadata import quorum_state, snapshots
from headrace.metadata.image import Image
from headrace.metadata.loader import damaged_log
from headrace.metadata.names import CLUSTER_METADATA_TOPIC
from headrace.metadata.quorum_state import QuorumState
from headrace.metadata.records import MetadataRecord, encode_record
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import ControlType, encode_batch, encode_control_batch
from headrace.protocol.records.header import BatchHeader, crc_matches, iterate_headers, parse_header
from headrace.protocol.schemas.quorum import LeaderChangeMessage, LeaderChangeVoter

PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
TOPIC_ID = UUID(int=1)
"""Kafka's fixed id of the metadata topic."""

READ_BYTES = 1 << 20

SNAPSHOTS_KEPT = 2

# Nothing expires by age or size: a snapshot alone decides what may go.
LOG_CONFIG = LogConfig(retention_ms=-1, retention_bytes=-1, file_delete_delay_ms=0)

logger = logging.getLogger(__name__)


class MetadataLog:
    """The log on disk; who may append to it, and what of it is committed, the quorum says.

    One caller at a time appends and flushes; a snapshot may be taken beside that.
    """

    def __init__(self, files: FileSystem, directory: LogDirectory, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._path = f"{directory.path}/{PARTITION}"
        self._open_log = directory.create
        self._snapshot_epoch = 0
        self.snapshot_end_offset = Offset(0)
        """Everything below it is in the newest snapshot."""
        # The first for whoever appends alone, the second for whoever takes a snapshot.
        self._bytes_appended = 0
        self._bytes_at_snapshot = 0

    def open(self, empty: Image) -> Image:
        """Open the log; return the image of the newest snapshot, behind which it goes on."""
        image = empty
        try:
            if self._files.exists(self._path):
                image = snapshots.load_newest(self._files, self._path, empty)
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error}") from error
        self._log = self._open_log(PARTITION, TOPIC_ID, LOG_CONFIG)
        start = self.snapshot_end_offset = Offset(image.offset + 1)
        self._snapshot_epoch = image.epoch
        if self._log.log_end_offset < start:
            # The log lost a tail that the snapshot still has.
            self._log.truncate_fully_and_start_at(start)
        if self._log.log_start_offset > start:
            raise StartupRefused(
                f"{self._path}: the log begins at offset {self._log.log_start_offset}, and no "
                f"snapshot reaches further than {start}",
                hint="restore the newest .checkpoint file from a backup of the data directory",
            )
        self._bytes_appended = self._log.size_bytes
        self._bytes_at_snapshot = sum(
            segment.size for segment in self._log.segments if segment.next_offset <= start
        )
        return image

    @property
    def end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Of the newest batch, or of the snapshot if there is none behind it."""
        return max(self._snapshot_epoch, self._log.latest_epoch)

    def read(self, start: Offset, end: Offset) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Every whole batch from `start` to `end`; they must follow one another."""
        while start < end:
            data = memoryview(self._log.read(start, READ_BYTES, end, at_least_one=True))
            if not data:
                raise damaged_log(self._path, start, "nothing can be read there")
            try:
                for position, header in iterate_headers(data):
                    batch = data[position : position + header.size]
                    if header.base_offset != start:
                        raise CorruptBatch(f"the next batch is at offset {header.base_offset}")
                    if not crc_matches(batch, 0, header):
                        raise CorruptBatch("a batch does not match its checksum")
                    yield batch, header
                    start = Offset(header.last_offset + 1)
            except CorruptBatch as error:
                raise damaged_log(self._path, start, str(error)) from error

    def load_quorum_state(self) -> QuorumState | None:
        return quorum_state.load(self._files, self._path)

    def store_quorum_state(self, state: QuorumState) -> None:
        """On disk when this returns."""
        try:
            self._files.make_directory(self._path)
            quorum_state.store(self._files, self._path, state)
        except OSError as error:
            raise StorageError(f"cannot store the quorum state: {error}") from error

    def append_leader_change(self, leader: NodeId, epoch: LeaderEpoch) -> None:
        """The first batch of an epoch, of which `leader` is the only voter."""
        voter = LeaderChangeVoter(voter_id=leader)
        change = LeaderChangeMessage(
            version=0, leader_id=leader, voters=[voter], granting_voters=[voter]
        )
        batch = encode_control_batch(
            [(ControlType.LEADER_CHANGE, change.encode(0))],
            base_offset=0,
            leader_epoch=epoch,
            timestamp=self._clock.now_ms(),
        )
        self._append(batch, epoch)

    def append(self, records: Sequence[MetadataRecord], epoch: LeaderEpoch) -> None:
        """Write the records as one batch; they count only once `flush` has returned."""
        now_ms = self._clock.now_ms()
        batch = encode_batch(
            Record(index, now_ms, None, encode_record(record), ())
            for index, record in enumerate(records)
        )
        self._append(batch, epoch)

    def _append(self, batch: bytearray, epoch: LeaderEpoch) -> None:
        self._log.append([(0, parse_header(batch))], memoryview(batch), epoch)
        self._bytes_appended += len(batch)

    @property
    def bytes_since_snapshot(self) -> int:
        return self._bytes_appended - self._bytes_at_snapshot

    def flush(self) -> None:
        """Everything appended before the call survives a power cut once this returns."""
        self._log.flush()

    @property
    def failure(self) -> StorageError | None:
        """Why what is on disk is no longer certain; only opening it again helps."""
        return self._log.failure

    def take_snapshot(self, image: Image) -> None:
        """Write `image`, which must be committed, and let go of what two snapshots hold.

        The log reaches back to the older of the two that are kept. So a reader of that one finds
        what follows it, and if the newest cannot be read there is still all of the metadata.
        """
        taken_at = self._bytes_appended
        try:
            snapshots.write_snapshot(
                self._files,
                self._path,
                image,
                timestamp_ms=self._clock.now_ms(),
                log_timestamp_ms=self._timestamp_of(image.offset),
            )
            self.snapshot_end_offset, self._bytes_at_snapshot = Offset(image.offset + 1), taken_at
            logger.info("snapshot taken: path=%s end_offset=%d", self._path, image.offset + 1)
            kept = snapshots.remove_older(self._files, self._path, SNAPSHOTS_KEPT)
            self._log.roll()
            if len(kept) == SNAPSHOTS_KEPT:
                self._delete_before(Offset(kept[-1].end_offset))
        except OSError as error:
            raise StorageError(f"cannot take a snapshot in {self._path}: {error}") from error

    def _delete_before(self, offset: Offset) -> None:
        """Delete whole segments below `offset`; what fails is tried again by the next snapshot."""
        bases = [segment.base_offset for segment in self._log.segments]
        start = max((base for base in bases if base <= offset), default=bases[0])
        # No further than a segment's beginning, whose name then says where the log starts.
        self._log.advance_log_start(Offset(start))
        self._log.apply_retention(self._clock.now_ms(), high_watermark=offset)
        self._log.remove_deleted(self._clock.monotonic_ms())

    def _timestamp_of(self, offset: Offset) -> int:
        """When the batch that holds `offset` was appended; -1 of an empty log."""
        data = self._log.read(offset, 1, self._log.log_end_offset) if offset >= 0 else b""
        return parse_header(data).max_timestamp if data else -1
