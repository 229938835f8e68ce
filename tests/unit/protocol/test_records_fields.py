"""Record batches inside messages: views on the way in, no copies on the way out."""

from __future__ import annotations

from typing import cast

from headrace.protocol.encoder import RECORDS_APART_BYTES
from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def produce(records: bytes | None) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=1, timeout_ms=5, topic_data=[topic])


def fetched(*records: bytes | None) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=9, records=one)
        for index, one in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_records_are_views_into_the_buffer_that_was_read() -> None:
    frame = bytearray(produce(b"batch").encode(9))
    records = ProduceRequest.decode(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    records[0:1] = b"B"
    assert b"Batch" in frame


def test_null_records_stay_null() -> None:
    data = produce(None).encode(9)
    assert ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records is None


def test_large_records_travel_as_the_very_object_given() -> None:
    large = bytes(RECORDS_APART_BYTES)
    parts = fetched(large, b"small", large).encode_parts(12)
    assert [part is large for part in parts] == [False, True, False, True, False]
    assert b"".join(cast(list[bytes], parts)) == fetched(large, b"small", large).encode(12)


def test_small_records_are_joined_into_one_part() -> None:
    message = fetched(b"small", None, b"")
    assert message.encode_parts(11) == [message.encode(11)]


def test_a_message_that_ends_in_large_records_has_no_empty_part_after_them() -> None:
    large = bytes(RECORDS_APART_BYTES)
    head, records = produce(large).encode_parts(8)
    assert records is large
    assert head == produce(b"").encode(8)[:-4] + len(large).to_bytes(4, "big")
