"""Batching, requests and verdicts of the producer's core."""

from typing import Any
from uuid import UUID

import pytest

from headrace.client import ProducerSettings, RecordMetadata
from headrace.client.core.accumulator import AppendResult, RecordAccumulator
from headrace.client.core.errors import DeliveryTimedOut
from headrace.client.core.operations import Session
from headrace.client.core.partition_queue import NO_IDENTITY, ProducerIdentity
from headrace.client.core.planned_produce import PlannedProduce
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import NO_TOPIC_ID, TopicPartition
from headrace.network.errors import BrokerUnreachable
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import BatchHeader, parse_header
from tests.support.client_core import TOPIC_ID, ManualClock, make_session, metadata

GONE = BrokerUnreachable("gone")


class Bench:
    """A core with its clock, and what its waiters were told."""

    def __init__(self, partitions: int = 2, **settings: Any) -> None:
        self.clock = ManualClock()
        self.session: Session = make_session(self.clock)
        self.session.cluster.update(metadata(partitions, brokers=(0, 1)), 0)
        self.told: dict[Any, RecordMetadata | HeadraceError] = {}
        chosen = ProducerSettings(**{"linger_ms": 0, **settings})
        self.sending = RecordAccumulator(self.session, chosen, self.told.__setitem__)
        if chosen.is_idempotent:
            self.sending.identity = ProducerIdentity(9, 0)

    def send(self, waiter: Any, partition: int = 0, value: bytes = b"v") -> AppendResult:
        return self.sending.append("t", partition, None, value, (), 5, waiter, self.clock.ms)

    def drain(self) -> list[PlannedProduce]:
        return self.sending.drain(self.clock.ms)

    def answer(self, call: PlannedProduce, **outcome: Any) -> None:
        """Every partition of the call gets the same outcome."""
        outcome.setdefault("base_offset", -1)
        parts = [
            PartitionProduceResponse(index=batch.partition.partition, **outcome)
            for batch in call.batches
        ]
        answer = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=parts)
        endpoints = [NodeEndpoint(node_id=1, host="broker-1", port=9092)]
        response = ProduceResponse(responses=[answer], node_endpoints=endpoints)
        self.sending.on_response(call, response, self.clock.ms)

    def introduce(self) -> None:
        """Have one batch written, so that the leader knows the producer: sequence 0 is used."""
        self.send("first")
        self.answer(self.drain()[0], base_offset=0)
        del self.told["first"]

    def later(self, ms: float) -> None:
        self.clock.ms += ms
        self.sending.expire(self.clock.ms)


def header_of(call: PlannedProduce) -> BatchHeader:
    data = call.batches[0].data
    assert data is not None
    return parse_header(data)


def test_records_wait_for_linger_and_then_go_together() -> None:
    bench = Bench(linger_ms=10)
    bench.send("a")
    bench.later(9)
    bench.send("b")
    assert bench.drain() == []
    assert bench.sending.next_due_ms(bench.clock.ms) == 10
    bench.later(1)
    (call,) = bench.drain()
    bench.answer(call, base_offset=40)
    assert bench.told == {
        "a": RecordMetadata("t", 0, 40, 5),
        "b": RecordMetadata("t", 0, 41, 5),
    }
    assert bench.sending.is_idle


def test_a_full_batch_does_not_wait() -> None:
    bench = Bench(linger_ms=1000, batch_bytes=200)
    news = [bench.send(index, value=b"x" * 100) for index in range(2)]
    assert news == [AppendResult.FIRST_BATCH, AppendResult.BATCH_FULL]
    (call,) = bench.drain()
    assert call.batches[0].waiters == [0]


def test_flushing_sends_what_is_there() -> None:
    bench = Bench(linger_ms=1000)
    bench.send("a")
    bench.sending.begin_flush()
    assert len(bench.drain()) == 1
    bench.sending.end_flush()
    bench.send("b", partition=1)
    assert bench.drain() == []


def test_partitions_of_one_broker_share_a_request() -> None:
    bench = Bench()
    bench.send("a", 0)
    bench.send("b", 1)
    (call,) = bench.drain()
    request = call.send.request
    assert isinstance(request, ProduceRequest)
    assert [part.index for part in request.topic_data[0].partition_data] == [0, 1]


def test_a_request_is_kept_below_its_size() -> None:
    bench = Bench(request_bytes_max=300)
    bench.send("a", 0, b"x" * 200)
    bench.send("b", 1, b"x" * 200)
    assert [len(call.batches) for call in bench.drain()] == [1, 1]


def test_no_more_requests_than_allowed_are_in_flight() -> None:
    bench = Bench(batch_bytes=40, in_flight_max=2)
    bench.introduce()
    for index in range(4):
        bench.send(index)
    first, second = bench.drain()
    assert bench.drain() == []
    bench.answer(first, base_offset=0)
    assert [header_of(call).base_sequence for call in [second, *bench.drain()]] == [2, 3]


def test_without_topic_ids_topics_go_by_name() -> None:
    bench = Bench()
    bench.session.cluster.update(metadata(2, topic_id=NO_TOPIC_ID), 0)
    bench.send("a")
    (call,) = bench.drain()
    assert call.send.version_max == 12
    answer = TopicProduceResponse(
        name="t", partition_responses=[PartitionProduceResponse(index=0, base_offset=3)]
    )
    bench.sending.on_response(call, ProduceResponse(responses=[answer]), 0)
    assert bench.told == {"a": RecordMetadata("t", 0, 3, 5)}


def test_an_answer_about_a_topic_that_was_made_anew_meanwhile_is_understood() -> None:
    bench = Bench()
    bench.send("a")
    (call,) = bench.drain()
    bench.session.cluster.update(metadata(2, topic_id=UUID(int=8), brokers=(0, 1)), 0)
    bench.answer(call, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    bench.later(100)
    (again,) = bench.drain()
    request = again.send.request
    assert isinstance(request, ProduceRequest)
    assert request.topic_data[0].topic_id == UUID(int=8)
    assert bench.told == {}


def test_append_time_of_the_broker_wins() -> None:
    bench = Bench()
    bench.send("a")
    bench.answer(bench.drain()[0], base_offset=1, log_append_time_ms=777)
    assert bench.told == {"a": RecordMetadata("t", 0, 1, 777)}


def test_a_lost_batch_comes_back_with_its_sequence_after_a_pause() -> None:
    bench = Bench()
    bench.send("a")
    (call,) = bench.drain()
    before = bytes(call.batches[0].data or b"")
    bench.sending.on_response(call, GONE, bench.clock.ms)
    assert bench.sending.stale_topics(bench.clock.ms) == {"t"}
    assert bench.drain() == []
    bench.later(100)
    (again,) = bench.drain()
    assert bytes(again.batches[0].data or b"") == before
    assert bench.told == {}


def test_returned_batches_go_one_at_a_time_and_in_order() -> None:
    bench = Bench(batch_bytes=40)
    bench.introduce()
    for index in range(3):
        bench.send(index)
    for call in bench.drain():
        bench.sending.on_response(call, GONE, bench.clock.ms)
    bench.later(100)
    for sequence in range(1, 4):
        (call,) = bench.drain()
        assert header_of(call).base_sequence == sequence
        bench.answer(call, base_offset=sequence)
    assert bench.sending.is_idle


def test_the_first_batch_of_an_epoch_flies_alone() -> None:
    bench = Bench(batch_bytes=40)
    bench.send("a")
    bench.send("b")
    (first,) = bench.drain()
    bench.answer(first, error_code=ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.later(100)
    (again,) = bench.drain()
    assert header_of(again).base_sequence == 0, "the other must not become the leader's first"
    bench.answer(again, base_offset=0)
    assert header_of(bench.drain()[0]).base_sequence == 1


def test_out_of_order_behind_an_older_failure_keeps_the_epoch() -> None:
    bench = Bench(batch_bytes=40)
    bench.introduce()
    bench.send("a")
    bench.send("b")
    first, second = bench.drain()
    bench.answer(first, error_code=ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.answer(second, error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.later(100)
    (call,) = bench.drain()
    assert header_of(call).producer_epoch == 0


def test_the_oldest_batch_out_of_order_starts_over_with_a_new_epoch() -> None:
    bench = Bench(batch_bytes=40)
    bench.introduce()
    bench.send("b")
    bench.send("c")
    first, second = bench.drain()
    assert header_of(first).base_sequence == 1
    bench.answer(first, error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.later(100)
    assert bench.drain() == [], "one is still in flight"
    bench.answer(second, error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.later(100)
    for sequence in range(2):
        (call,) = bench.drain()
        assert header_of(call)[9:12] == (9, 1, sequence)
        bench.answer(call, base_offset=sequence)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    bench = Bench()
    bench.sending.identity = ProducerIdentity(9, 32767)
    bench.send("a")
    (call,) = bench.drain()
    bench.answer(call, error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.later(100)
    assert bench.drain() == []
    assert bench.sending.identity is NO_IDENTITY
    assert bench.sending.needs_identity
    bench.sending.identity = ProducerIdentity(10, 0)
    assert header_of(bench.drain()[0])[9:12] == (10, 0, 0)


def test_other_partitions_keep_their_epoch_until_they_are_settled() -> None:
    bench = Bench()
    bench.send("a", 0)
    bench.send("b", 1)
    (call,) = bench.drain()
    parts = [
        PartitionProduceResponse(index=0, error_code=ErrorCode.UNKNOWN_PRODUCER_ID, base_offset=-1),
        PartitionProduceResponse(index=1, error_code=ErrorCode.REQUEST_TIMED_OUT, base_offset=-1),
    ]
    answer = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=parts)
    bench.sending.on_response(call, ProduceResponse(responses=[answer]), 0)
    bench.later(100)
    stamps = {
        batch.partition.partition: parse_header(batch.data or b"")[9:12]
        for call in bench.drain()
        for batch in call.batches
    }
    # Partition 1 may have been written: only its old stamp lets the broker recognize it.
    assert stamps == {0: (9, 1, 0), 1: (9, 0, 0)}


def test_a_duplicate_is_a_success() -> None:
    bench = Bench()
    bench.send("a")
    bench.answer(bench.drain()[0], error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert bench.told == {"a": RecordMetadata("t", 0, -1, 5)}


def test_a_new_leader_named_in_the_answer_gets_the_next_try() -> None:
    bench = Bench()
    bench.send("a")
    bench.answer(
        bench.drain()[0],
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=1),
    )
    bench.later(100)
    assert bench.drain()[0].send.node == 1


def test_a_batch_that_is_too_large_is_split_and_keeps_its_place() -> None:
    bench = Bench()
    for index in range(4):
        bench.send(index, value=b"%d" % index * 100)
    (call,) = bench.drain()
    bench.send(4)
    bench.answer(call, error_code=ErrorCode.MESSAGE_TOO_LARGE)
    offset = 0
    for _ in range(10):
        for call in bench.drain():
            bench.answer(call, base_offset=offset)
            offset += call.batches[0].count
    assert [bench.told[index].offset for index in range(5)] == [0, 1, 2, 3, 4]  # type: ignore[union-attr]  # all good
    assert bench.sending.buffered_bytes == 0


def test_one_record_that_is_too_large_fails() -> None:
    bench = Bench()
    bench.send("a")
    bench.answer(bench.drain()[0], error_code=ErrorCode.MESSAGE_TOO_LARGE)
    error = bench.told["a"]
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_records_at_fault_get_the_reason_and_their_fellows_another() -> None:
    bench = Bench()
    bench.send("good")
    bench.send("bad")
    reason = BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")
    bench.answer(bench.drain()[0], error_code=ErrorCode.INVALID_RECORD, record_errors=[reason])
    assert "no key" in str(bench.told["bad"])
    assert "may be sent again" in str(bench.told["good"])


def test_a_sequence_that_was_refused_is_used_for_the_next_batch() -> None:
    bench = Bench()
    bench.send("a")
    bench.answer(bench.drain()[0], error_code=ErrorCode.INVALID_RECORD)
    bench.send("b")
    assert header_of(bench.drain()[0])[9:12] == (9, 0, 0)


def test_delivery_has_an_end_in_the_queue_and_in_flight() -> None:
    bench = Bench(delivery_timeout_ms=1000)
    bench.send("flying", 0)
    (call,) = bench.drain()
    bench.session.cluster.update(metadata(2, leader=7, epoch=1), 0)
    bench.send("queued", 1)
    bench.later(1000)
    assert isinstance(bench.told["flying"], DeliveryTimedOut)
    assert "sent 1 times" in str(bench.told["flying"])
    assert "never sent" in str(bench.told["queued"])
    bench.answer(call, base_offset=0)
    assert bench.sending.is_idle
    assert bench.sending.buffered_bytes == 0


def test_without_idempotence_batches_carry_no_producer() -> None:
    bench = Bench(acks=1)
    bench.send("a")
    assert header_of(bench.drain()[0])[9:12] == (-1, -1, -1)


def test_acks_0_is_settled_when_it_is_written_to_the_socket() -> None:
    bench = Bench(acks=0)
    bench.send("a")
    (call,) = bench.drain()
    assert not call.send.expects_response
    bench.sending.on_response(call, None, 0)
    assert bench.told == {"a": RecordMetadata("t", 0, -1, 5)}


def test_an_answer_that_leaves_a_partition_out_is_a_failure_of_it() -> None:
    bench = Bench()
    bench.send("a")
    bench.sending.on_response(bench.drain()[0], ProduceResponse(responses=[]), 0)
    assert isinstance(bench.told["a"], ApiError)


def test_a_ready_made_batch_is_stamped_and_otherwise_untouched() -> None:
    bench = Bench()
    records = [Record(0, 5, b"k", b"1"), Record(1, 6, None, b"2")]
    data = encode_batch(records)
    bench.sending.append_batch(TopicPartition("t", 1), data, "whole", 0)
    bench.send("single", 1)
    (first,) = [call for call in bench.drain() if call.batches[0].waiters == ["whole"]]
    sent = first.batches[0].data
    assert sent is not None
    assert parse_header(sent)[9:12] == (9, 0, 0)
    assert list(iterate_records(sent)) == records
    bench.answer(first, base_offset=70)
    assert bench.told["whole"] == RecordMetadata("t", 1, 70, 6)


def test_half_a_ready_made_batch_is_refused() -> None:
    bench = Bench()
    data = encode_batch([Record(0, 5, b"k", b"1")])
    with pytest.raises(HeadraceError):
        bench.sending.append_batch(TopicPartition("t", 0), data[:-1], "w", 0)
    assert bench.sending.is_idle


def test_the_buffer_counts_what_is_not_settled() -> None:
    bench = Bench(buffer_bytes=1000)
    assert bench.sending.has_room(5000), "a record larger than the buffer may enter an empty one"
    bench.send("a", value=b"x" * 900)
    assert not bench.sending.has_room(100)
    bench.answer(bench.drain()[0], base_offset=0)
    assert bench.sending.has_room(100)


def test_failing_all_leaves_nothing_queued() -> None:
    bench = Bench(linger_ms=1000)
    bench.send("a")
    bench.sending.fail_all(GONE)
    assert bench.told == {"a": GONE}
    assert bench.sending.is_idle
    bench.send("b")
    bench.later(1000)
    assert header_of(bench.drain()[0]).base_sequence == 0


def test_a_record_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    bench = Bench(linger_ms=10)
    unencodable = [("\ud800", b"")]
    for waiter in ("alone", "second"):
        with pytest.raises(UnicodeEncodeError):
            bench.sending.append("t", 0, None, b"v", unencodable, 99, "bad", bench.clock.ms)
        if waiter == "alone":
            assert bench.sending.is_idle
            assert bench.sending.buffered_bytes == 0
            bench.send("good")
    bench.later(10)
    (call,) = bench.drain()
    assert [batch.waiters for batch in call.batches] == [["good"]]
    assert parse_header(call.batches[0].encode(0, None)).max_timestamp == 5
