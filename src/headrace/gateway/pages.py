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
_RECORDS_PER_TURN: Final = 500
_KEPT_MAX: Final = 16
_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024


class _Place(NamedTuple):
    """Where reading stopped: the batch, told from others by its checksum, and the next offset."""

    partition: TopicPartition
    base_offset: int
    crc: int
    next_offset: int


class _Rest(NamedTuple):
    """Records of a batch that are not decoded yet, and the size of the memory behind them."""

    records: Iterator[Record]
    bytes: int


class Pages:
    """Takes records out of fetched chunks; shared by all who read."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Place, _Rest] = OrderedDict()
        self._kept_bytes = 0

    async def take(
        self, chunk: FetchedChunk, start: int, last_offset: int, max_records: int
    ) -> tuple[list[Record], int]:
        """Up to `max_records` from offset `start` on, and the offset at which to go on."""
        out: list[Record] = []
        for position, header in visible_batches(chunk, start, check_crc=True):
            if max_records <= 0:
                return out, start
            place = _Place(chunk.partition, header.base_offset, header.crc, start)
            rest = self._resume(place)
            if rest is None:
                payload = record_payload(chunk.data, header, position)
                rest = _Rest(decode_payload(payload, header), len(payload))
                if header.base_offset < start:
                    await _skip(rest.records, start, out)
            await _fill(out, rest.records, max_records)
            if len(out) >= max_records:
                following = out[-1].offset + 1
                if following <= header.last_offset:
                    self._keep(place._replace(next_offset=following), rest)
                return out, following
        return out, last_offset + 1

    def _resume(self, place: _Place) -> _Rest | None:
        rest = self._kept.pop(place, None)
        if rest is not None:
            self._kept_bytes -= rest.bytes
        return rest

    def _keep(self, place: _Place, rest: _Rest) -> None:
        self._resume(place)
        self._kept[place] = rest
        self._kept_bytes += rest.bytes
        while len(self._kept) > _KEPT_MAX or self._kept_bytes > _KEPT_BYTES_MAX:
            self._resume(next(iter(self._kept)))


async def _skip(records: Iterator[Record], start: int, out: list[Record]) -> None:
    """Take the first record from `start` on, after all those before it."""
    for number, record in enumerate(records, 1):
        if record.offset >= start:
            out.append(record)
            return
        if not number % _RECORDS_PER_TURN:
            await asyncio.sleep(0)


async def _fill(out: list[Record], records: Iterator[Record], max_records: int) -> None:
    """Decode until there are enough, or the batch ends."""
    while True:
        wanted = min(_RECORDS_PER_TURN, max_records - len(out))
        found = list(islice(records, wanted))
        out += found
        if len(found) < _RECORDS_PER_TURN:
            return
        await asyncio.sleep(0)
