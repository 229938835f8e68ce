"""A shard out of its log, in slices short enough that requests go on beside it.

What is not in the page cache, as after the machine's start, is brought in by a worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from struct import Struct
from typing import Any, Final, TypeVar

from headrace.coordinator.shard import CoordinatorShard, RecordDecoder
from headrace.core.errors import CorruptBatch
from headrace.core.ids import Offset
from headrace.log.page_cache import CACHED_READS_ONLY, NotInPageCache
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.decode import Record, decode_payload, record_payload
from headrace.protocol.records.encode import ControlType
from headrace.protocol.records.header import BatchHeader, crc_matches, iterate_headers
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
RECORDS_PER_SLICE = 1_000
# How often parts of one stretch are brought in; then the disk is waited for.
ROUNDS_MAX: Final = 40

_CONTROL_KEY: Final = Struct(">hh")

InWorker = Callable[[Callable[[], None]], Awaitable[None]]
R = TypeVar("R")


async def load(
    partition: Partition,
    shard: CoordinatorShard[R, Any],
    decoder: RecordDecoder[R],
    in_worker: InWorker,
    is_wanted: Callable[[], bool],
) -> bool:
    """Replay everything that is written; raises what the disk or a damaged batch does.

    False if it stopped half way, since the shard is wanted no more.
    """
    left = RECORDS_PER_SLICE
    log = partition.log
    position, end = log.log_start_offset, log.log_end_offset
    while position < end:
        data = await _read(log, position, end, in_worker)
        if not is_wanted():
            return False
        if not data:
            break
        for header, records in _batches(memoryview(data)):
            replay = _replay_of(header, shard, decoder)
            for record in records:
                if record.offset < position or record.key is None:
                    continue
                try:
                    replay(record.key, record.value)
                except Exception as error:
                    # Whatever it is: one record must not take the whole shard with it.
                    _log_skipped(partition, record, error)
                left -= 1
                if not left:
                    left = RECORDS_PER_SLICE
                    await asyncio.sleep(0)
                    if not is_wanted():
                        return False
        position = _end(data)
    return is_wanted()


def _batches(data: memoryview) -> Iterator[tuple[BatchHeader, Iterator[Record]]]:
    for at, header in iterate_headers(data):
        if not crc_matches(data, at, header):
            # A group that goes on from a wrong offset is worse than one that has to wait.
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} does not match its checksum"
            )
        yield header, decode_payload(record_payload(data, header, at), header)


def _replay_of(
    header: BatchHeader, shard: CoordinatorShard[R, Any], decoder: RecordDecoder[R]
) -> Callable[[bytes, bytes | None], None]:
    """What is to be done with each record of a batch, by its key and value."""
    producer_id = header.producer_id if header.is_transactional else -1

    def replay_control(key: bytes, _: bytes | None) -> None:
        _, kind = _CONTROL_KEY.unpack_from(key)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            is_commit = kind == ControlType.COMMIT
            shard.replay_marker(header.producer_id, header.producer_epoch, is_commit)

    def replay(key: bytes, value: bytes | None) -> None:
        record = decoder.decode(key, value)
        if record is not None:
            shard.replay(record, producer_id)

    return replay_control if header.is_control else replay


def _log_skipped(partition: Partition, record: Record, error: Exception) -> None:
    logger.error(
        "skipped a record: partition=%s offset=%d error=%s",
        partition.id,
        record.offset,
        repr(error),
    )


def _end(data: bytes) -> Offset:
    """The offset behind the last batch."""
    last = 0
    for _, header in iterate_headers(data):
        last = header.last_offset
    return Offset(last + 1)


async def _read(log: PartitionLog, position: Offset, end: Offset, in_worker: InWorker) -> bytes:
    for _ in range(ROUNDS_MAX):
        try:
            with CACHED_READS_ONLY:
                return log.read(position, READ_BYTES, end)
        except NotInPageCache as missing:
            await in_worker(missing.load)
    return log.read(position, READ_BYTES, end)
