"""A log of given batches, as far as a coordinator reads it to load a shard."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from headrace.coordinator.loading import load
from headrace.coordinator.shard import CoordinatorShard, RecordDecoder
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import ControlType, encode_batch, encode_control_batch


class HandMadeLog:
    """Batches at consecutive offsets, those of transactions and their markers among them."""

    log_start_offset = 0

    def __init__(self) -> None:
        self._data = bytearray()
        self.log_end_offset = 0

    def read(self, position: int, size: int, end: int) -> bytes:
        assert (position, end) == (0, self.log_end_offset), "all of it fits one read"
        assert size > len(self._data)
        return bytes(self._data)

    def records(
        self,
        *records: tuple[bytes, bytes | None],
        producer_id: int = -1,
        is_transactional: bool = True,
    ) -> None:
        """A batch; with a producer id it is part of that producer's transaction, or else only
        numbered."""
        has_producer = producer_id >= 0
        self._data += encode_batch(
            (
                Record(self.log_end_offset + place, 1, key, value)
                for place, (key, value) in enumerate(records)
            ),
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=0 if has_producer else -1,
            transactional=has_producer and is_transactional,
        )
        self.log_end_offset += len(records)

    def control(self, kind: ControlType, producer_id: int = -1, epoch: int = 0) -> None:
        """A control batch, as a marker of the end of a transaction is."""
        self._data += encode_control_batch(
            [(kind, b"\0\0\0\0\0\0")],
            base_offset=self.log_end_offset,
            leader_epoch=0,
            timestamp=1,
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer_id >= 0,
        )
        self.log_end_offset += 1

    def load_into(self, shard: CoordinatorShard[Any, Any], decoder: RecordDecoder[Any]) -> None:
        async def in_worker(_: Callable[[], None]) -> None:
            raise AssertionError("all of it is in memory")

        partition = SimpleNamespace(id=TopicPartition("t", 0), log=self)
        assert asyncio.run(load(cast(Any, partition), shard, decoder, in_worker, lambda: True))
