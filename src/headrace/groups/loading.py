"""A shard out of its log, in slices short enough that requests go on beside it.

What is not in the page cache, as after the machine's start, is brought in by a worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.ids import Offset
from headrace.groups.records import decode
from headrace.groups.shard import GroupShard
from headrace.groups.stored_offsets import OffsetReader
from headrace.log.page_cache import CACHED_READS_ONLY, NotInPageCache
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.decode import Record, decode_payload, record_payload
from headrace.protocol.records.header import crc_matches, iterate_headers
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
RECORDS_PER_SLICE = 1_000
# How often parts of one stretch are brought in; then the disk is waited for.
ROUNDS_MAX: Final = 40

InWorker = Callable[[Callable[[], None]], Awaitable[None]]


async def load(partition: Partition, in_worker: InWorker) -> GroupShard:
    """Replay everything that is written; raises what the disk or a damaged batch does."""
    shard = GroupShard()
    reader = OffsetReader()
    left = RECORDS_PER_SLICE
    log = partition.log
    position, end = log.log_start_offset, log.log_end_offset
    while position < end:
        data = await _read(log, position, end, in_worker)
        if not data:
            break
        for record in _records(memoryview(data), position):
            _apply(shard, reader, record, partition)
            left -= 1
            if not left:
                left = RECORDS_PER_SLICE
                await asyncio.sleep(0)
        position = _end(data)
    return shard


def _records(data: memoryview, position: Offset) -> Iterator[Record]:
    for at, header in iterate_headers(data):
        if not crc_matches(data, at, header):
            # A group that goes on from a wrong offset is worse than one that has to wait.
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} does not match its checksum"
            )
        if not header.is_control:
            for record in decode_payload(record_payload(data, header, at), header):
                if record.offset >= position:
                    yield record


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


def _apply(shard: GroupShard, reader: OffsetReader, record: Record, partition: Partition) -> None:
    if record.key is None:
        return
    try:
        stored = reader.read(record.key, record.value)
        if stored is not None:
            shard.put_offset(*stored)
            return
        decoded = decode(record.key, record.value)
        if decoded is not None:
            shard.replay(decoded)
    except Exception as error:  # whatever it is: one record must not take the whole shard with it
        logger.error(
            "skipped a group record: partition=%s offset=%d error=%s",
            partition.id,
            record.offset,
            repr(error),
        )
