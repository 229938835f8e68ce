"""Planning fetches, and making records of their answers."""

from typing import Any
from uuid import UUID

import pytest

from headrace.client import EARLIEST, LATEST, OffsetSpec, ReaderSettings, at_time
from headrace.client.core.fetch_request import PlannedFetch
from headrace.client.core.fetched import whole_batches
from headrace.client.core.fetcher import Fetcher
from headrace.core.errors import (
    CorruptBatch,
    ErrorCode,
    HeadraceError,
    OffsetOutOfRange,
)
from headrace.core.ids import NO_TOPIC_ID, TopicPartition
from headrace.network.errors import BrokerUnreachable
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import ControlType, encode_batch, encode_control_batch
from tests.support.client_core import TOPIC_ID, ManualClock, OperationDriver, make_session, metadata

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(first: int, count: int, *, producer_id: int = -1) -> bytes:
    """A batch of numbered records; with a producer it is part of a transaction."""
    return bytes(
        encode_batch(
            [Record(offset, 1, None, b"%d" % offset) for offset in range(first, first + count)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
    )


def marker(offset: int, kind: ControlType, producer_id: int) -> bytes:
    return bytes(
        encode_control_batch(
            [(kind, b"\0\0\0\0\0\0")],
            base_offset=offset,
            leader_epoch=0,
            timestamp=1,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
        )
    )


class Bench:
    """A core that reads two partitions from offset 0, with its clock."""

    def __init__(self, start: int | OffsetSpec = 0, **settings: Any) -> None:
        self.clock = ManualClock()
        self.session = make_session(self.clock)
        self.session.cluster.update(metadata(2, brokers=(0, 1)), 0)
        self.fetching = Fetcher(self.session, ReaderSettings(**settings), 1)
        self.fetching.assign({T0: start, T1: start})

    def plan(self) -> list[PlannedFetch]:
        return self.fetching.plan(self.clock.ms)

    def wanted(self, call: PlannedFetch) -> dict[int, int]:
        """Fetch offsets by partition, in the order asked."""
        request = call.send.request
        assert isinstance(request, FetchRequest)
        return {part.partition: part.fetch_offset for part in request.topics[0].partitions}

    def answer(self, call: PlannedFetch, **by_partition: Any) -> None:
        """`p0=bytes` for records, `p0=ErrorCode` for errors; others come back empty."""
        parts = []
        for index in self.wanted(call):
            given = by_partition.get(f"p{index}", b"")
            code = int(given) if isinstance(given, ErrorCode) else 0
            records = b"" if code else given
            parts.append(
                PartitionData(
                    partition_index=index, error_code=code, high_watermark=100, records=records
                )
            )
        self.respond(call, parts)

    def respond(self, call: PlannedFetch, parts: list[PartitionData]) -> None:
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)
        self.fetching.on_response(call, FetchResponse(responses=[topic]), self.clock.ms)

    def offsets(self, count: int = 1000) -> dict[int, list[int]]:
        taken = self.fetching.take(count)
        return {tp.partition: [record.offset for record in taken[tp]] for tp in taken}


def test_one_fetch_per_broker_is_in_flight() -> None:
    bench = Bench()
    (call,) = bench.plan()
    assert bench.wanted(call) == {0: 0, 1: 0}
    assert bench.plan() == []
    bench.answer(call, p0=batch(0, 3))
    (call,) = bench.plan()
    assert bench.wanted(call) == {1: 0, 0: 3}, "who got something goes to the back of the line"


def test_records_come_in_portions_and_the_position_follows() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 3) + batch(3, 3))
    assert bench.offsets(4) == {0: [0, 1, 2, 3]}
    assert bench.fetching.cursor(T0).position == 4
    assert bench.offsets(4) == {0: [4, 5]}
    assert bench.offsets() == {}


@pytest.mark.parametrize("room", [0, 1, 3, 4, 7])
def test_what_is_not_wanted_is_the_first_of_the_next_portion(room: int) -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 3) + batch(3, 3), p1=batch(0, 2))
    asked: list[tuple[int, int]] = []

    def wants(where: TopicPartition, record: Record) -> bool:
        asked.append((where.partition, record.offset))
        return len(asked) <= room

    taken = bench.fetching.take(1000, wants)
    found = [(where.partition, each.offset) for where in taken for each in taken[where]]
    assert found == asked[:room]
    assert bench.fetching.cursor(T0).position == min(room, 6)
    rest = bench.offsets()
    assert rest.get(0, []) == list(range(min(room, 6), 6))
    assert rest[1] == list(range(max(0, room - 6), 2))


def test_a_batch_that_begins_before_the_position_is_cut() -> None:
    bench = Bench(start=2)
    bench.answer(bench.plan()[0], p0=batch(0, 4))
    assert bench.offsets() == {0: [2, 3]}


def test_half_a_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 2) + batch(2, 2)[:-1])
    assert bench.offsets() == {0: [0, 1]}
    assert bench.wanted(bench.plan()[0])[0] == 2


def test_whole_batches_tell_their_last_offset() -> None:
    assert whole_batches(batch(5, 2))[1] == 6
    assert whole_batches(batch(5, 2)[:40]) == (memoryview(b""), None)
    with pytest.raises(CorruptBatch):
        whole_batches(b"\0" * 100)


def test_enough_waiting_stops_the_next_fetch_of_that_partition() -> None:
    bench = Bench(prefetch_bytes=1)
    bench.answer(bench.plan()[0], p0=batch(0, 1))
    assert bench.wanted(bench.plan()[0]) == {1: 0}


def test_a_seek_drops_what_was_fetched_and_what_is_on_its_way() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 3))
    (late,) = bench.plan()
    bench.fetching.seek(T0, 50)
    bench.answer(late, p0=batch(3, 3))
    assert bench.offsets() == {}
    assert bench.wanted(bench.plan()[0])[0] == 50


def test_an_answer_for_an_old_assignment_is_dropped() -> None:
    bench = Bench()
    (late,) = bench.plan()
    bench.fetching.assign({T1: 9})
    bench.answer(late, p0=batch(0, 3), p1=batch(0, 3))
    assert bench.offsets() == {}
    assert bench.wanted(bench.plan()[0]) == {1: 9}


def test_paused_partitions_are_neither_fetched_nor_returned() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 1), p1=batch(0, 1))
    bench.fetching.cursor(T0).is_paused = True
    assert bench.wanted(bench.plan()[0]) == {1: 1}
    assert bench.offsets() == {1: [0]}
    bench.fetching.cursor(T0).is_paused = False
    assert bench.offsets() == {0: [0]}


def test_a_new_leader_is_looked_for_and_the_partition_waits() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert bench.fetching.needs_lookup(0)
    (other,) = bench.plan()
    assert bench.wanted(other) == {1: 0}
    assert bench.fetching.next_retry_ms(0) == 100
    bench.clock.ms = 100
    bench.session.cluster.update(metadata(2, leader=1, epoch=1, brokers=(0, 1)), 100)
    (call,) = bench.plan()
    assert (call.send.node, bench.wanted(call)) == (1, {0: 0}), "partition 1 is still on its way"
    bench.answer(other, p1=batch(0, 1))
    bench.answer(call, p0=batch(0, 1))
    assert bench.wanted(bench.plan()[0]) == {1: 1, 0: 1}


def test_a_new_leader_named_in_the_answer_is_used() -> None:
    bench = Bench()
    (call,) = bench.plan()
    moved = PartitionData(
        partition_index=0,
        error_code=ErrorCode.FENCED_LEADER_EPOCH,
        high_watermark=-1,
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
    )
    bench.respond(call, [moved])
    bench.clock.ms = 100
    assert {call.send.node: bench.wanted(call) for call in bench.plan()} == {0: {1: 0}, 1: {0: 0}}


def test_a_lost_connection_is_retried() -> None:
    bench = Bench()
    (call,) = bench.plan()
    bench.fetching.on_response(call, BrokerUnreachable("gone"), 0)
    assert bench.plan() == []
    bench.clock.ms = 100
    assert len(bench.plan()) == 1


def test_an_offset_that_is_gone_is_an_error_after_what_was_there_is_read() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 1))
    (call,) = bench.plan()
    bench.answer(call, p0=ErrorCode.OFFSET_OUT_OF_RANGE)
    bench.fetching.raise_error()
    assert bench.offsets() == {0: [0]}
    bench.answer(bench.plan()[0], p0=ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(OffsetOutOfRange, match=r"t-0: offset 1 does not exist.*offset_reset"):
        bench.fetching.raise_error()


def listed(play: OperationDriver, **offsets: int) -> None:
    """Answer the ListOffsets a lookup is waiting for."""
    (send,) = play.requests()
    assert isinstance(send.request, ListOffsetsRequest)
    parts = [
        ListOffsetsPartitionResponse(
            partition_index=part.partition_index,
            offset=offsets[f"p{part.partition_index}"],
            timestamp=-1,
        )
        for part in send.request.topics[0].partitions
    ]
    topic = ListOffsetsTopicResponse(name="t", partitions=parts)
    play.respond([ListOffsetsResponse(topics=[topic])])


def test_an_offset_that_is_gone_may_move_to_an_end() -> None:
    bench = Bench(offset_reset="earliest")
    bench.answer(bench.plan()[0], p0=ErrorCode.OFFSET_OUT_OF_RANGE)
    play = OperationDriver(bench.fetching.look_up())
    listed(play, p0=30)
    assert bench.wanted(bench.plan()[0]) == {0: 30, 1: 0}


def test_places_given_by_meaning_are_looked_up_first() -> None:
    bench = Bench(start=LATEST)
    assert bench.fetching.needs_lookup(0)
    assert bench.plan() == []
    play = OperationDriver(bench.fetching.look_up())
    listed(play, p0=7, p1=8)
    assert not bench.fetching.needs_lookup(0)
    assert bench.wanted(bench.plan()[0]) == {0: 7, 1: 8}


def test_a_time_later_than_every_record_means_the_end() -> None:
    bench = Bench(start=at_time(10**15))
    play = OperationDriver(bench.fetching.look_up())
    listed(play, p0=-1, p1=3)
    listed(play, p0=70)
    assert bench.wanted(bench.plan()[0]) == {0: 70, 1: 3}


def test_a_seek_during_a_lookup_wins() -> None:
    bench = Bench(start=EARLIEST)
    play = OperationDriver(bench.fetching.look_up())
    bench.fetching.seek(T0, 5)
    listed(play, p0=0, p1=0)
    assert bench.wanted(bench.plan()[0]) == {0: 5, 1: 0}


def test_a_damaged_batch_is_an_error_after_what_was_read_before_it() -> None:
    damaged = bytearray(batch(3, 2))
    damaged[-2] ^= 1
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 3) + damaged + batch(5, 1), p1=batch(0, 1))
    assert bench.offsets() == {0: [0, 1, 2], 1: [0]}
    with pytest.raises(CorruptBatch, match="t-0 at offset 3: the checksum"):
        bench.fetching.raise_error()


def test_nothing_behind_a_damaged_batch_is_read_until_a_seek() -> None:
    damaged = bytearray(batch(0, 2))
    damaged[-2] ^= 1
    bench = Bench()
    for _ in range(2):
        bench.answer(bench.plan()[0], p0=bytes(damaged) + batch(2, 1))
        assert bench.offsets() == {}
        with pytest.raises(CorruptBatch):
            bench.fetching.raise_error()
    bench.fetching.seek(T0, 2)
    bench.answer(bench.plan()[0], p0=batch(2, 1))
    assert bench.offsets() == {0: [2]}


def test_iteration_stops_at_a_damaged_batch() -> None:
    damaged = bytearray(batch(1, 1))
    damaged[-2] ^= 1
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 1) + damaged + batch(2, 1))
    first = bench.fetching.take_one()
    assert first is not None
    assert first.offset == 0
    assert bench.fetching.take_one() is None
    with pytest.raises(CorruptBatch):
        bench.fetching.raise_error()


def test_markers_are_stepped_over() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=marker(0, ControlType.COMMIT, 5) + batch(1, 1))
    assert bench.offsets() == {0: [1]}
    bench.answer(bench.plan()[0], p0=marker(2, ControlType.COMMIT, 5))
    assert bench.offsets() == {}
    assert bench.fetching.cursor(T0).position == 3


def test_read_committed_hides_aborted_transactions_and_nothing_else() -> None:
    bench = Bench(isolation="read_committed")
    (call,) = bench.plan()
    data = (
        batch(0, 2, producer_id=5)
        + batch(2, 1, producer_id=6)
        + marker(3, ControlType.ABORT, 5)
        + batch(4, 1, producer_id=5)
        + marker(5, ControlType.COMMIT, 6)
    )
    part = PartitionData(
        partition_index=0,
        high_watermark=6,
        records=data,
        aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=0)],
    )
    bench.respond(call, [part])
    assert bench.offsets() == {0: [2, 4]}


def test_chunks_are_handed_out_as_they_came() -> None:
    bench = Bench()
    bench.answer(bench.plan()[0], p0=batch(0, 2), p1=batch(0, 1))
    first, second = bench.fetching.take_chunks()
    assert (first.partition, first.fetch_offset, bytes(first.data)) == (T0, 0, batch(0, 2))
    assert (first.high_watermark, second.partition) == (100, T1)
    assert bench.fetching.cursor(T0).position == 2
    assert bench.fetching.take_chunks() == []


def test_without_topic_ids_topics_go_by_name() -> None:
    bench = Bench()
    bench.session.cluster.update(metadata(2, topic_id=NO_TOPIC_ID), 0)
    (call,) = bench.plan()
    assert call.send.version_max == 12
    part = PartitionData(partition_index=0, high_watermark=1, records=batch(0, 1))
    topic = FetchableTopicResponse(topic="t", partitions=[part])
    bench.fetching.on_response(call, FetchResponse(responses=[topic]), 0)
    assert bench.offsets() == {0: [0]}


def test_what_is_not_assigned_is_named() -> None:
    with pytest.raises(HeadraceError, match="t-9: not assigned"):
        Bench().fetching.seek(TopicPartition("t", 9), 0)
    with pytest.raises(OffsetOutOfRange, match="negative"):
        Bench().fetching.seek(T0, -5)


def session_of(call: PlannedFetch) -> tuple[int, int, list[int], list[int]]:
    """Session id and epoch, partitions named, partitions forgotten."""
    request = call.send.request
    assert isinstance(request, FetchRequest)
    named = [part.partition for topic in request.topics for part in topic.partitions]
    forgotten = [number for topic in request.forgotten_topics_data for number in topic.partitions]
    return request.session_id, request.session_epoch, named, forgotten


def in_session(bench: Bench, call: PlannedFetch, session_id: int, **found: bytes) -> None:
    parts = [
        PartitionData(partition_index=int(name[1:]), high_watermark=9, records=records)
        for name, records in found.items()
    ]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)
    answer = FetchResponse(session_id=session_id, responses=[topic] if parts else [])
    bench.fetching.on_response(call, answer, bench.clock.ms)


def test_a_session_names_only_what_has_changed() -> None:
    bench = Bench(sessions=True, prefetch_bytes=0)
    (call,) = bench.plan()
    assert session_of(call) == (0, 0, [0, 1], [])
    in_session(bench, call, 77, p0=batch(0, 2))
    (call,) = bench.plan()
    assert session_of(call) == (77, 1, [], [0]), "what waits to be read is not fetched"
    in_session(bench, call, 77)
    assert bench.offsets() == {0: [0, 1]}
    (call,) = bench.plan()
    assert session_of(call) == (77, 2, [0], [])


def test_a_session_that_the_broker_forgot_begins_anew_at_once() -> None:
    bench = Bench(sessions=True)
    in_session(bench, bench.plan()[0], 77)
    (call,) = bench.plan()
    lost = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    bench.fetching.on_response(call, lost, 0)
    assert session_of(bench.plan()[0]) == (0, 0, [0, 1], [])


def test_a_session_does_not_outlive_its_connection() -> None:
    bench = Bench(sessions=True)
    in_session(bench, bench.plan()[0], 77)
    bench.fetching.on_response(bench.plan()[0], BrokerUnreachable("gone"), 0)
    bench.clock.ms = 200
    assert session_of(bench.plan()[0]) == (0, 0, [0, 1], [])


def test_a_broker_without_room_for_sessions_is_asked_in_full_each_time() -> None:
    bench = Bench(sessions=True)
    in_session(bench, bench.plan()[0], 0)
    assert session_of(bench.plan()[0]) == (0, 0, [0, 1], [])


def test_a_topic_made_anew_replaces_the_old_one_in_the_session() -> None:
    bench = Bench(sessions=True)
    in_session(bench, bench.plan()[0], 77)
    again = UUID(int=8)
    bench.session.cluster.update(metadata(2, topic_id=again, brokers=(0, 1)), 0)
    assert session_of(bench.plan()[0]) == (77, 1, [0, 1], [0, 1])


def test_without_sessions_each_fetch_stands_alone() -> None:
    bench = Bench()
    assert session_of(bench.plan()[0]) == (0, -1, [0, 1], [])
