"""Pages of fetched batches: no more records are decoded than are asked for.

A batch of a megabyte may hold a million records, and who reads one of them must not hold up
everybody else. So records are decoded some hundreds at a time, with a turn of the loop between;
and where a page ends inside a batch the rest is kept for a while, still encoded, so that the next
page goes on there instead of beginning the batch again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from headrace.client.core.fetched import visible_batches
from headrace.client.core.models import FetchedChunk
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import Record, decode_payload, record_payload

# About half a millisecond of work.
_RECORDS_PER_SLICE: Final = 500
_BATCHES_MAX: Final = 16
_CACHED_BYTES_MAX: Final = 16 * 1024 * 1024


class _CacheKey(NamedTuple):
    """Where reading stopped: the batch, told from others by its checksum, and the next offset."""

    partition: TopicPartition
    base_offset: int
    crc: int
    next_offset: int


class _PartialBatch(NamedTuple):
    """Records of a batch that are not decoded yet, and the size of the memory behind them."""

    records: Iterator[Record]
    bytes: int


class PartialBatchCache:
    """Takes records out of fetched chunks; shared by all who read."""

    def __init__(self) -> None:
        self._batches: OrderedDict[_CacheKey, _PartialBatch] = OrderedDict()
        self._bytes = 0

    async def decode(
        self, chunk: FetchedChunk, start: int, last_offset: int, max_records: int
    ) -> tuple[list[Record], int]:
        """Up to `max_records` from offset `start` on, and the offset at which to go on."""
        out: list[Record] = []
        for position, header in visible_batches(chunk, start, check_crc=True):
            if max_records <= 0:
                return out, start
            key = _CacheKey(chunk.partition, header.base_offset, header.crc, start)
            batch = self._pop(key)
            if batch is None:
                payload = record_payload(chunk.data, header, position)
                batch = _PartialBatch(decode_payload(payload, header), len(payload))
                if header.base_offset < start:
                    await _skip(batch.records, start, out)
            await _fill(out, batch.records, max_records)
            if len(out) >= max_records:
                following = out[-1].offset + 1
                if following <= header.last_offset:
                    self._put(key._replace(next_offset=following), batch)
                return out, following
        return out, last_offset + 1

    def _pop(self, key: _CacheKey) -> _PartialBatch | None:
        batch = self._batches.pop(key, None)
        if batch is not None:
            self._bytes -= batch.bytes
        return batch

    def _put(self, key: _CacheKey, batch: _PartialBatch) -> None:
        self._pop(key)
        self._batches[key] = batch
        self._bytes += batch.bytes
        while len(self._batches) > _BATCHES_MAX or self._bytes > _CACHED_BYTES_MAX:
            self._pop(next(iter(self._batches)))


async def _skip(records: Iterator[Record], start: int, out: list[Record]) -> None:
    """Take the first record from `start` on, after all those before it."""
    for number, record in enumerate(records, 1):
        if record.offset >= start:
            out.append(record)
            return
        if not number % _RECORDS_PER_SLICE:
            await asyncio.sleep(0)


async def _fill(out: list[Record], records: Iterator[Record], max_records: int) -> None:
    """Decode until there are enough, or the batch ends."""
    while True:
        wanted = min(_RECORDS_PER_SLICE, max_records - len(out))
        found = list(islice(records, wanted))
        out += found
        if len(found) < _RECORDS_PER_SLICE:
            return
        await asyncio.sleep(0)
