"""The metadata log and its snapshots on disk: load an image, append records, shorten.

    __cluster_metadata-0/
      00000000000000004011.log ................ batches of framed metadata records
      00000000000000004011-0000000003.checkpoint    everything below offset 4011
      00000000000000004711-0000000003.checkpoint    everything below offset 4711
      quorum-state ............................ the newest epoch, and the vote in it

One batch holds whole commands, so that a torn tail never leaves half of one. Everything here is
synchronous; `controller.controller` picks the thread and never runs two calls at once.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from headrace.core.errors import CorruptBatch, HeadraceError, StartupRefused, StorageError
from headrace.core.files import FileSystem
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.core.runtime import Clock
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.metadata import quorum_state, snapshots
from headrace.metadata.builder import ImageBuilder
from headrace.metadata.image import Image
from headrace.metadata.names import CLUSTER_METADATA_TOPIC
from headrace.metadata.records import MetadataRecord, decode_record, encode_record
from headrace.protocol.records.decode import Record, iterate_records
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
    """Owned by the leader of the quorum, which on one node is this node."""

    def __init__(
        self, files: FileSystem, directory: LogDirectory, clock: Clock, node_id: NodeId
    ) -> None:
        self._files = files
        self._clock = clock
        self._node_id = node_id
        self._path = f"{directory.path}/{PARTITION}"
        self._directory_id = directory.meta_properties.directory_id
        self._open_log = directory.create
        self._snapshot_end = Offset(0)
        self._bytes_appended = 0
        self._bytes_at_snapshot = 0
        self.epoch = LeaderEpoch(0)

    def load(self, empty: Image) -> Image:
        """Open the log and replay it on the newest snapshot."""
        image = empty
        try:
            if self._files.exists(self._path):
                image = snapshots.load_newest(self._files, self._path, empty)
                self.epoch = self._load_epoch()
        except OSError as error:
            raise StorageError(f"cannot read {self._path}: {error}") from error
        self._log = self._open_log(PARTITION, TOPIC_ID, LOG_CONFIG)
        start = self._snapshot_end = Offset(image.offset + 1)
        if self._log.log_end_offset < start:
            # The log lost a tail that the snapshot still has.
            self._log.truncate_fully_and_start_at(start)
        if self._log.log_start_offset > start:
            raise StartupRefused(
                f"{self._path}: the log begins at offset {self._log.log_start_offset}, and no "
                f"snapshot reaches further than {start}",
                hint="restore the newest .checkpoint file from a backup of the data directory",
            )
        image = self._replay(image)
        self.epoch = LeaderEpoch(max(self.epoch, image.epoch))
        return image

    def _load_epoch(self) -> LeaderEpoch:
        try:
            state = quorum_state.load(self._files, self._path)
        except quorum_state.UnreadableQuorumState as error:
            # The sole voter has nobody to vote for or against: whatever it committed is in its
            # log, with its epoch.
            logger.warning("the epoch is taken from the metadata log: reason=%s", error)
            state = None
        return LeaderEpoch(0) if state is None else state.leader_epoch

    def _replay(self, image: Image) -> Image:
        builder = ImageBuilder(image)
        for batch, header in self._batches(Offset(image.offset + 1)):
            try:
                if not header.is_control:
                    records = iterate_records(batch, 0, header)
                    builder.apply(decode_record(record.value or b"") for record in records)
            except StartupRefused:
                raise
            except (HeadraceError, LookupError) as error:
                raise self._damaged(header.base_offset, str(error)) from error
            builder.move_to(Offset(header.last_offset), header.leader_epoch)
            self._bytes_appended += header.size
        return builder.freeze()

    def _batches(self, start: Offset) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Every whole batch from `start` to the end, which must follow one another."""
        end = self._log.log_end_offset
        while start < end:
            data = memoryview(self._log.read(start, READ_BYTES, end, at_least_one=True))
            if not data:
                raise self._damaged(start, "nothing can be read there")
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
                raise self._damaged(start, str(error)) from error

    def _damaged(self, offset: int, reason: str) -> StartupRefused:
        return StartupRefused(
            f"{self._path}: the metadata log is damaged at offset {offset}: {reason}",
            hint="restore the data directory from a backup; `headrace log verify` names the file",
        )

    def start_epoch(self, image: Image) -> Image:
        """Begin a new epoch as its leader: remember it, then say so in the log."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        state = quorum_state.QuorumState(
            self.epoch, self._node_id, self._node_id, self._directory_id
        )
        try:
            self._files.make_directory(self._path)
            quorum_state.store(self._files, self._path, state)
        except OSError as error:
            raise StorageError(f"cannot store the quorum state: {error}") from error
        voter = LeaderChangeVoter(voter_id=self._node_id)
        change = LeaderChangeMessage(
            version=0, leader_id=self._node_id, voters=[voter], granting_voters=[voter]
        )
        batch = encode_control_batch(
            [(ControlType.LEADER_CHANGE, change.encode(0))],
            base_offset=0,
            leader_epoch=self.epoch,
            timestamp=self._clock.now_ms(),
        )
        self._append(batch)
        return replace(image, offset=Offset(image.offset + 1), epoch=self.epoch)

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Write the records as one batch; they count only once `flush` has returned."""
        now_ms = self._clock.now_ms()
        self._append(
            encode_batch(
                Record(index, now_ms, None, encode_record(record), ())
                for index, record in enumerate(records)
            )
        )

    def _append(self, batch: bytearray) -> None:
        self._log.append([(0, parse_header(batch))], memoryview(batch), self.epoch)
        self._bytes_appended += len(batch)

    @property
    def records_since_snapshot(self) -> int:
        return self._log.log_end_offset - self._snapshot_end

    @property
    def bytes_since_snapshot(self) -> int:
        return self._bytes_appended - self._bytes_at_snapshot

    def flush(self) -> None:
        """Everything appended before the call survives a power cut once this returns."""
        self._log.flush()

    @property
    def failed(self) -> bool:
        """Whether what is on disk is no longer certain; only opening it again helps."""
        return self._log.failure is not None

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
            self._snapshot_end, self._bytes_at_snapshot = Offset(image.offset + 1), taken_at
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
