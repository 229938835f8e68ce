"""Snapshots: an image written down, so that the log before it can go.

`<end offset>-<epoch>.checkpoint` holds the records that build the image of everything below the
end offset, between a header and a footer, in batches of the log's own format. A snapshot takes
its name only when it is whole and on disk; one without its footer is not one.
"""

import logging
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from headrace.core.errors import CorruptBatch, HeadraceError, StartupRefused
from headrace.core.files import FileSystem
from headrace.core.ids import Offset
from headrace.log.checkpoints import replace_file
from headrace.metadata.builder import ImageBuilder
from headrace.metadata.image import Image
from headrace.metadata.records import (
    METADATA_VERSION,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    TopicRecord,
    decode_record,
    encode_record,
    partition_record,
    register_broker_record,
)
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import ControlType, encode_batch, encode_control_batch
from headrace.protocol.records.header import crc_matches, iterate_headers
from headrace.protocol.schemas.quorum import SnapshotFooterRecord, SnapshotHeaderRecord

SUFFIX = ".checkpoint"
RECORDS_PER_BATCH = 1_000

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

logger = logging.getLogger(__name__)


class SnapshotId(NamedTuple):
    """Which snapshot: it holds everything below `end_offset`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


def list_snapshots(files: FileSystem, directory: str) -> list[SnapshotId]:
    """Snapshots in the directory, newest first."""
    matches = (_NAME.fullmatch(name) for name in files.list_directory(directory))
    return sorted((SnapshotId(int(m[1]), int(m[2])) for m in matches if m), reverse=True)


def write_snapshot(
    files: FileSystem, directory: str, image: Image, *, timestamp_ms: int, log_timestamp_ms: int
) -> SnapshotId:
    """Write `image` down and return once it would survive a power cut.

    `log_timestamp_ms` is when the last record in it was appended.
    """
    snapshot = SnapshotId(image.offset + 1, image.epoch)
    data = b"".join(_batches(image, timestamp_ms, log_timestamp_ms))
    replace_file(files, f"{directory}/{snapshot.file_name}", data, durable=True)
    files.sync_directory(directory)
    return snapshot


def _batches(image: Image, timestamp_ms: int, log_timestamp_ms: int) -> Iterator[bytearray]:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=log_timestamp_ms)
    control = (ControlType.SNAPSHOT_HEADER, header.encode(0))
    yield encode_control_batch(
        [control], base_offset=0, leader_epoch=image.epoch, timestamp=timestamp_ms
    )
    offset = 1
    remaining = iter(snapshot_records(image))
    while chunk := list(islice(remaining, RECORDS_PER_BATCH)):
        yield encode_batch(
            (
                Record(index, timestamp_ms, None, encode_record(record), ())
                for index, record in enumerate(chunk, offset)
            ),
            leader_epoch=image.epoch,
        )
        offset += len(chunk)
    control = (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0).encode(0))
    yield encode_control_batch(
        [control], base_offset=offset, leader_epoch=image.epoch, timestamp=timestamp_ms
    )


def load_newest(files: FileSystem, directory: str, empty: Image) -> Image:
    """The image of the newest snapshot that is whole, or `empty`."""
    for snapshot in list_snapshots(files, directory):
        path = f"{directory}/{snapshot.file_name}"
        try:
            return _read_snapshot(files.read_file(path), snapshot, empty)
        except StartupRefused:
            raise  # it is whole, and of a later version
        except HeadraceError as error:
            logger.error("snapshot passed over: path=%s reason=%s", path, error)
    return empty


def _read_snapshot(data: bytes, snapshot: SnapshotId, empty: Image) -> Image:
    view = memoryview(data)
    builder = ImageBuilder(empty)
    kinds: list[int] = []
    for position, header in iterate_headers(view):
        if not crc_matches(view, position, header):
            raise CorruptBatch(f"the batch at byte {position} does not match its checksum")
        records = iterate_records(view, position, header)
        if header.is_control:
            kinds += (int.from_bytes((record.key or b"")[2:4], "big") for record in records)
        else:
            builder.apply(decode_record(record.value or b"") for record in records)
    if kinds != [ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]:
        raise CorruptBatch("the snapshot lacks its header or its footer")
    builder.move_to(Offset(snapshot.end_offset - 1), snapshot.epoch)
    return builder.freeze()


def remove_older(files: FileSystem, directory: str, keep: int) -> list[SnapshotId]:
    """Remove all but the newest `keep`, and what a crash left half written; return who stays,
    newest first."""
    found = list_snapshots(files, directory)
    for snapshot in found[keep:]:
        files.remove(f"{directory}/{snapshot.file_name}")
    for name in files.list_directory(directory):
        if name.endswith(SUFFIX + ".tmp"):
            files.remove(f"{directory}/{name}")
    return found[:keep]


def snapshot_records(image: Image) -> Iterator[MetadataRecord]:
    """Records that build `image` from nothing, in an order in which each can be applied."""
    # The metadata version leads: Kafka reads the other records in its light.
    for name in sorted(image.features, key=lambda name: name != METADATA_VERSION):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker in image.brokers.values():
        yield register_broker_record(broker)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, registration in enumerate(topic.partitions):
            yield partition_record(topic.id, index, registration)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    if image.next_producer_id:
        # Whom the last block went to is not part of the image, and nobody asks.
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
