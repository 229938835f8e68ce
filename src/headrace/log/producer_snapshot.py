"""Producer state in a file named after the offset it holds for: Kafka's `.snapshot` format.

    version (int16, 1), CRC-32C of the rest (uint32), number of entries (int32), entries

Kafka keeps one entry per producer, its last batch. We write one per kept batch, oldest first:
Kafka lets a later entry of the same producer replace the earlier one, so it reads our files as
its own, and after a restart we still know all five batches a producer may send again.

Snapshots save time and outlive the data they were made from, but the CRC distinguishes a good one
from a bad one; so they are synced only where the data that could rebuild them is about to be
deleted.
"""

import logging
from struct import Struct, error
from typing import Final

from headrace.core.files import FileSystem
from headrace.log.names import SNAPSHOT, offset_name
from headrace.log.producer_state import (
    NO_SEQUENCE,
    BatchMetadata,
    ProducerStateEntry,
    ProducerStates,
)
from headrace.protocol.records.checksum import crc32c

logger = logging.getLogger(__name__)

VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction.
_ENTRY: Final = Struct(">qhiqiqiq")


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset_name(offset, SNAPSHOT)}"


def encode_snapshot(states: ProducerStates) -> bytes:
    entries: list[bytes] = []
    for producer_id, producer in states:
        batches = producer.batches or [BatchMetadata(NO_SEQUENCE, -1, 0, producer.last_timestamp)]
        entries += [
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            for batch in batches
        ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> ProducerStates | None:
    """The states in a snapshot, or None if it is not a good one."""
    try:
        version, crc = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        (count,) = _COUNT.unpack_from(body)
    except error:
        return None
    entries = body[_COUNT.size :]
    if version != VERSION or crc32c(body) != crc or len(entries) != count * _ENTRY.size:
        return None
    states = ProducerStates()
    for entry in _ENTRY.iter_unpack(entries):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = entry
        producer = states.get(producer_id)
        if producer is None:
            producer = ProducerStateEntry(epoch)
            states.put(producer_id, producer)
        if sequence != NO_SEQUENCE:
            producer.add_batch(epoch, BatchMetadata(sequence, offset, delta, timestamp))
        producer.epoch = epoch
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = start
    return states


def load_snapshot(files: FileSystem, directory: str, offset: int) -> ProducerStates | None:
    """The snapshot for `offset`; None if it is missing or bad, and a bad one is removed."""
    path = snapshot_path(directory, offset)
    try:
        states = decode_snapshot(files.read_file(path))
    except FileNotFoundError:
        return None
    if states is None:
        logger.warning("removing a bad producer snapshot: path=%s", path)
        files.remove(path)
    return states
