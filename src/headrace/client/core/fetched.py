"""From fetched bytes to records: whole batches only, checked, without what must not be seen."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop
from itertools import islice, takewhile
from struct import Struct

from headrace.client.core.models import FetchedChunk
from headrace.core.errors import CorruptBatch
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import ControlType
from headrace.protocol.records.header import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    parse_header,
)

_BASE_AND_LENGTH = Struct(">qi")
_LAST_DELTA_AT = 23
_CONTROL_KEY = Struct(">hh")
NO_EPOCH_KNOWN = -1
# A few milliseconds of work.
_PIECE_RECORDS = 1_000


def whole_batches(data: Buffer) -> tuple[memoryview, int | None]:
    """Cut off a last batch that is not complete; also the last offset of what is left.

    Brokers fill an answer up to its byte limit, in the middle of a batch if need be.
    """
    view = memoryview(data)
    end, position, last = len(view), 0, None
    while end - position >= HEADER_SIZE:
        base_offset, length = _BASE_AND_LENGTH.unpack_from(view, position)
        size = length + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptBatch(f"batch length {length} at position {position} of a fetch")
        if size > end - position:
            break
        delta_at = position + _LAST_DELTA_AT
        last = base_offset + int.from_bytes(view[delta_at : delta_at + 4], "big")
        position += size
    return view[:position], last


def decode_chunk(
    chunk: FetchedChunk, start: int, *, check_crc: bool
) -> Iterator[tuple[int, list[Record]]]:
    """The records of a chunk from offset `start` on: leader epoch and list of each batch.

    A batch may hold a million records; a large one comes in pieces, decoded as they are asked for.
    """
    for position, header in visible_batches(chunk, start, check_crc=check_crc):
        encoded = iterate_records(chunk.data, position, header)
        size = _PIECE_RECORDS
        while size == _PIECE_RECORDS:
            records = list(islice(encoded, _PIECE_RECORDS))
            size = len(records)
            if records and records[0].offset < start:
                records = [record for record in records if record.offset >= start]
            if records:
                yield header.leader_epoch, records


def visible_batches(
    chunk: FetchedChunk, start: int, *, check_crc: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch with records to show from offset `start` on."""
    aborted = _Aborted(chunk.aborted)
    for position, header in _checked(chunk, check_crc=check_crc):
        if header.last_offset < start:
            continue
        if not aborted.hides(header, chunk.data, position) and not header.is_control:
            yield position, header


def _checked(chunk: FetchedChunk, *, check_crc: bool) -> Iterator[tuple[int, BatchHeader]]:
    data, position = chunk.data, 0
    while position < len(data):
        header = parse_header(data, position)
        where = f"{chunk.partition} at offset {header.base_offset}"
        if header.magic != MAGIC:
            raise CorruptBatch(f"{where}: batches of format {header.magic} are not supported")
        end = position + header.size
        if check_crc and crc32c(data[position + ATTRIBUTES_AT : end]) != header.crc:
            raise CorruptBatch(f"{where}: the checksum does not match the bytes received")
        yield position, header
        position = end


class _Aborted:
    """Which producers are inside an aborted transaction at the current batch."""

    __slots__ = ("_ahead", "_open")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._ahead)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, data: memoryview, position: int) -> bool:
        if not self._ahead and not self._open:
            return False
        while self._ahead and self._ahead[0][0] <= header.last_offset:
            self._open.add(heappop(self._ahead)[1])
        if header.is_control:
            if _is_abort(data, position, header):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _is_abort(data: memoryview, position: int, header: BatchHeader) -> bool:
    record = next(iterate_records(data, position, header), None)
    if record is None or record.key is None or len(record.key) < _CONTROL_KEY.size:
        return False
    return bool(_CONTROL_KEY.unpack_from(record.key)[1] == ControlType.ABORT)


Wants = Callable[[TopicPartition, Record], bool]
"""Asked of each record in turn before it is handed out; once it says no it goes on to say no."""


class Cursor:
    """One partition being read: where the caller is, what is fetched ahead, what went wrong."""

    __slots__ = (
        "batch",
        "batch_at",
        "batch_epoch",
        "buffered_bytes",
        "chunks",
        "decoded",
        "error",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "in_flight",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "position",
        "reading",
        "retry_at_ms",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        self.fetch_offset = -1
        # Grows with every seek: an answer to a fetch from before it is dropped.
        self.generation = 0
        self.in_flight = False
        self.is_paused = False
        self.failures = 0
        self.retry_at_ms = 0.0
        self.error: Exception | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.chunks: list[FetchedChunk] = []
        # The chunk being read, its batches still to come, and the batch at hand from `batch_at` on.
        self.reading: FetchedChunk | None = None
        self.decoded: Iterator[tuple[int, list[Record]]] = iter(())
        self.batch: list[Record] = []
        self.batch_at = 0
        # Leader epochs: of the batch at hand, and of the last record before the position.
        self.batch_epoch = self.leader_epoch = NO_EPOCH_KNOWN
        self.buffered_bytes = 0

    def move(self, offset: int | None, leader_epoch: int = NO_EPOCH_KNOWN) -> None:
        """Forget everything fetched; go on from `offset` (None: to be found out)."""
        self.generation += 1
        self.position = offset
        self.leader_epoch = leader_epoch
        self.fetch_offset = -1 if offset is None else offset
        self.chunks.clear()
        self.stop_reading()
        self.buffered_bytes = 0
        self.error = None
        self.failures = 0
        self.retry_at_ms = 0.0

    def stop_reading(self) -> None:
        """Drop what is left of the chunk being read."""
        self.reading = None
        self.decoded = iter(())
        self.batch = []
        self.batch_at = 0

    def has_record(self) -> bool:
        """Whether the chunk being read has another record, which is then at `batch_at`."""
        if self.batch_at < len(self.batch):
            return True
        batch = next(self.decoded, None)
        if batch is None:
            self.stop_reading()
            return False
        (self.batch_epoch, self.batch), self.batch_at = batch, 0
        return True

    def take(self, records_max: int, wants: Wants | None = None) -> list[Record]:
        """Records of the batch at hand, after `has_record`; the position moves behind them."""
        records = self.batch[self.batch_at : self.batch_at + records_max]
        if wants is not None:
            records = list(takewhile(partial(wants, self.partition), records))
            if not records:
                return records
        self.batch_at += len(records)
        self.position = records[-1].offset + 1
        self.leader_epoch = self.batch_epoch
        return records

    def take_rest(self) -> FetchedChunk | None:
        """The chunk being read, for one who decodes it alone, unless all of it was handed out."""
        chunk, position = self.reading, self.position
        self.stop_reading()
        if chunk is None or position is None:
            return None
        last_offset = whole_batches(chunk.data)[1]
        if last_offset is None or last_offset < position:
            return None
        return chunk._replace(fetch_offset=position)
