"""Apache Kafka's own classes judge our batches, our error codes and our reading of theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import cramjam
import pytest

from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, iterate_records, record_payload
from headrace.protocol.records.encode import encode_batch, pack_batch
from headrace.protocol.records.header import BatchHeader, parse_header
from headrace.protocol.records.validate import BatchRules, check_batches
from tests.support.bad_batches import ALL_CASES, NOW, Case
from tests.support.groups import required
from tests.support.kafka_tools import KafkaTools

ROWS = [
    Record(0, NOW, b"key", b"value"),
    Record(1, NOW + 7, None, b"no key"),
    Record(2, NOW + 5, b"no value", None),
    Record(3, NOW + 5, b"", b""),
    Record(4, NOW + 9, b"k" * 70, b"v" * 90_000, (("h", b"1"), ("h", None), ("ünï", b""))),
]


@pytest.fixture(scope="module")
def kafka() -> KafkaTools:
    return required(KafkaTools)


def _ask(kafka: KafkaTools, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(json.dumps(question) + "\n" for question in questions)
    lines = kafka.run_program("RecordArbiter", text=text).checked().splitlines()
    assert len(lines) == len(questions)
    return [json.loads(line) for line in lines]


def _plain(records: Sequence[Record]) -> list[list[Any]]:
    """Records as JSON carries them."""
    return [
        [
            record.offset,
            record.timestamp,
            None if record.key is None else record.key.hex(),
            None if record.value is None else record.value.hex(),
            [[name, None if value is None else value.hex()] for name, value in record.headers],
        ]
        for record in records
    ]


def _raw_snappy(batch: bytes) -> bytes:
    """The batch with its records in one raw snappy block, as librdkafka writes it."""
    header: BatchHeader = parse_header(batch)
    payload = bytes(cramjam.snappy.compress_raw(record_payload(batch, header)))
    return bytes(
        pack_batch(
            payload,
            attributes=Codec.SNAPPY,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            record_count=header.record_count,
        )
    )


def test_kafka_gives_each_bad_batch_the_code_in_our_table(kafka: KafkaTools) -> None:
    def question(case: Case) -> dict[str, Any]:
        return {
            "ask": "validate",
            "batch": case.content.hex(),
            "version": case.version,
            "maxMessageBytes": case.rules.max_message_bytes,
            "compacted": case.rules.keys_required,
            "appendTime": case.rules.append_time,
            "beforeMaxMs": case.rules.timestamp_before_max_ms,
            "afterMaxMs": case.rules.timestamp_after_max_ms,
            "now": NOW,
        }

    answers = _ask(kafka, [question(case) for case in ALL_CASES])
    for case, answer in zip(ALL_CASES, answers, strict=True):
        due = case.code if case.kafka_code is None else case.kafka_code
        assert (answer["error"], tuple(answer["recordErrors"])) == (
            due.name,
            case.bad_records,
        ), f"{case.name}: {answer['message']}"


def test_kafka_reads_our_batches(kafka: KafkaTools) -> None:
    batches = [bytes(encode_batch(ROWS, codec=codec)) for codec in Codec]
    batches.append(_raw_snappy(batches[0]))
    batches.append(bytes(encode_batch(ROWS, delete_horizon=NOW + 10**9)))
    for answer in _ask(kafka, [{"ask": "read", "batch": batch.hex()} for batch in batches]):
        assert answer.get("error") is None
        assert answer["records"] == _plain(ROWS)


def test_we_read_kafkas_batches(kafka: KafkaTools) -> None:
    questions = [
        {
            "ask": "write",
            "codec": int(codec),
            "producerId": 11,
            "producerEpoch": 2,
            "baseSequence": 5,
            "records": _plain(ROWS),
        }
        for codec in Codec
    ]
    for codec, answer in zip(Codec, _ask(kafka, questions), strict=True):
        batch = bytearray.fromhex(answer["batch"])
        rules = BatchRules(each_record=True)
        [(_, header)] = check_batches(memoryview(batch), rules, now_ms=NOW)
        assert header.codec == codec
        assert list(iterate_records(batch, 0, header)) == ROWS
        if codec == Codec.NONE:
            ours = encode_batch(ROWS, producer_id=11, producer_epoch=2, base_sequence=5)
            assert batch == ours, "uncompressed, the two are the same bytes"
