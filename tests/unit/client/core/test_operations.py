"""Retries and lookups, answered by hand."""

from collections.abc import Callable
from uuid import UUID

import pytest

from headrace.client.core.backoff import Backoff
from headrace.client.core.errors import CallTimedOut, error_for
from headrace.client.core.lookups import MissingTopic, ensure_topics, list_offsets
from headrace.client.core.models import EARLIEST, LATEST, MAX_TIMESTAMP, ListedOffset, OffsetSpec
from headrace.client.core.operations import ClientOperation, Session, retrying, send_to_any
from headrace.client.core.producer_identity import request_producer_identity
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.network.errors import BrokerUnreachable
from headrace.protocol.messages.init_producer_id import InitProducerIdResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.client_core import ManualClock, OperationDriver, make_session, metadata

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNREACHABLE = BrokerUnreachable("cannot connect to boot:9092: refused")


def failing(code: ErrorCode) -> Callable[[], ClientOperation[None]]:
    def attempt() -> ClientOperation[None]:
        yield from ()
        raise error_for(code, None, "it")

    return attempt


class Swing:
    """Randomness at its ends."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value

    def uuid(self) -> UUID:
        raise AssertionError("not asked for here")


def test_delays_double_up_to_the_largest_and_vary_by_a_fifth() -> None:
    low = Backoff(100, 1000, Swing(0.0))
    high = Backoff(100, 1000, Swing(0.9999999))
    assert [round(low.delay_ms(n)) for n in (1, 2, 3, 9)] == [80, 160, 320, 800]
    assert [round(high.delay_ms(n)) for n in (1, 2, 3, 9)] == [120, 240, 480, 1200]


def test_a_retriable_failure_is_tried_again_after_growing_pauses() -> None:
    clock = ManualClock()
    play = OperationDriver(retrying(make_session(clock), failing(ErrorCode.NOT_CONTROLLER)))
    assert [play.pass_time(clock) for _ in range(4)] == [100, 200, 400, 800]


def test_a_final_failure_is_raised_at_once() -> None:
    with pytest.raises(ApiError) as refusal:
        OperationDriver(retrying(make_session(), failing(ErrorCode.INVALID_TOPIC_EXCEPTION)))
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_call_ends_with_its_last_failure_when_its_time_is_up() -> None:
    clock = ManualClock()
    session = make_session(clock, call_timeout_ms=500)
    play = OperationDriver(retrying(session, failing(ErrorCode.NOT_CONTROLLER)))
    play.pass_time(clock)
    with pytest.raises(CallTimedOut, match=r"3 attempts.*not controller") as late:
        play.pass_time(clock)
    assert not late.value.retriable


def test_any_broker_means_the_next_one_when_one_is_silent() -> None:
    session = make_session()
    session.cluster.update(metadata(brokers=(0, 1)), 0)
    play = OperationDriver(send_to_any(session, MetadataRequest(topics=[]), MetadataResponse))
    assert play.send().node == 0
    play.respond(UNREACHABLE)
    assert play.send().node == 1
    play.respond(metadata())
    assert play.is_done


def test_when_no_broker_answers_the_error_tells_of_each() -> None:
    play = OperationDriver(
        send_to_any(make_session(), MetadataRequest(topics=[]), MetadataResponse)
    )
    with pytest.raises(BrokerUnreachable, match="boot:9092: refused"):
        play.respond(UNREACHABLE)


def test_known_topics_are_not_asked_for_again() -> None:
    session = make_session()
    session.cluster.update(metadata(), 0)
    assert OperationDriver(ensure_topics(session, ["t"])).is_done


def test_a_missing_topic_is_an_error_at_once_unless_it_may_be_created() -> None:
    missing = metadata(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(MissingTopic, match="'t' does not exist"):
        OperationDriver(ensure_topics(make_session(), ["t"])).respond(missing)
    clock = ManualClock()
    play = OperationDriver(ensure_topics(make_session(clock), ["t"], create=True))
    request = play.send().request
    assert isinstance(request, MetadataRequest)
    assert request.allow_auto_topic_creation
    play.respond(missing)
    play.pass_time(clock)
    play.respond(metadata())
    assert play.is_done


def offsets(*found: tuple[int, int, int]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name="t",
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=index, error_code=code, offset=offset, timestamp=5
                    )
                    for index, code, offset in found
                ],
            )
        ]
    )


def looked_up(session: Session, specs: dict[TopicPartition, OffsetSpec]) -> OperationDriver:
    session.cluster.update(metadata(2), 0)
    return OperationDriver(list_offsets(session, specs))


def test_only_partitions_that_failed_are_asked_for_again_and_with_new_metadata() -> None:
    clock = ManualClock()
    play = looked_up(make_session(clock), {T0: EARLIEST, T1: LATEST})
    play.respond([offsets((0, 0, 10), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))])
    play.pass_time(clock)
    assert isinstance(play.send().request, MetadataRequest)
    play.respond(metadata(2, leader=0, epoch=1))
    (again,) = play.requests()
    assert isinstance(again.request, ListOffsetsRequest)
    assert [part.partition_index for part in again.request.topics[0].partitions] == [1]
    assert again.request.topics[0].partitions[0].current_leader_epoch == 1
    play.respond([offsets((1, 0, 20))])
    assert play.result == {T0: ListedOffset(10, 5, -1), T1: ListedOffset(20, 5, -1)}


@pytest.mark.parametrize("number", [-1, 2, 7])
def test_a_partition_that_the_topic_lacks_is_named(number: int) -> None:
    with pytest.raises(MissingTopic, match=f"topic 't' has partitions 0 to 1, not {number}"):
        looked_up(make_session(), {TopicPartition("t", number): LATEST})


def test_special_offsets_ask_for_a_version_that_has_them() -> None:
    play = looked_up(make_session(), {T0: MAX_TIMESTAMP, T1: LATEST})
    assert play.requests()[0].version_min == 7


def test_a_producer_id_is_asked_for_until_there_is_one() -> None:
    clock = ManualClock()
    play = OperationDriver(request_producer_identity(make_session(clock)))
    busy = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    play.respond(InitProducerIdResponse(error_code=busy, producer_epoch=-1))
    play.pass_time(clock)
    play.respond(InitProducerIdResponse(producer_id=9, producer_epoch=0))
    assert play.result == (9, 0)
