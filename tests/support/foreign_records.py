"""Record batches through other people's code: kafka-python, aiokafka and kio.

Each reader turns a batch into our own `Record`s and each writer makes a batch of them, so that a
test compares like with like.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from headrace.protocol.records.decode import Record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated call
    from aiokafka.partitioner import murmur2 as aiokafka_murmur2
    from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
    from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kio.records.readers import read_batch

__all__ = ["READERS", "WRITERS", "aiokafka_murmur2", "kafka_python_murmur2"]


def _read(batch_class: Any, batch: bytes) -> list[Record]:
    parsed = batch_class(bytearray(batch))
    assert parsed.validate_crc()
    return [
        Record(row.offset, row.timestamp, row.key, row.value, tuple(row.headers)) for row in parsed
    ]


def _read_kio(batch: bytes) -> list[Record]:
    parsed, used = read_batch(batch, 0)
    assert used == len(batch)
    return [
        Record(
            row.offset,
            round(row.timestamp.timestamp() * 1000),
            row.key,
            row.value,
            tuple(((header.key or b"").decode(), header.value) for header in row.headers),
        )
        for row in parsed.records
    ]


def _write(builder_class: Any, records: Iterable[Record], codec: int) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=11,
        producer_epoch=2,
        base_sequence=5,
        batch_size=1 << 24,
    )
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


READERS: dict[str, Callable[[bytes], list[Record]]] = {
    "kafka-python": lambda batch: _read(KafkaPythonBatch, batch),
    "aiokafka": lambda batch: _read(AiokafkaBatch, batch),
    "kio": _read_kio,
}
WRITERS: dict[str, Callable[[Iterable[Record], int], bytes]] = {
    "kafka-python": lambda records, codec: _write(KafkaPythonBuilder, records, codec),
    "aiokafka": lambda records, codec: _write(AiokafkaBuilder, records, codec),
}
