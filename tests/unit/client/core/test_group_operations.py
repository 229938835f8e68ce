"""Admin flows about groups, answered by hand."""

from collections.abc import Callable

import pytest

from headrace.client.core.admin_groups import (
    alter_offsets,
    delete_groups,
    describe_groups,
    list_groups,
)
from headrace.client.core.errors import GroupInUse
from headrace.client.core.group_lag import group_lags
from headrace.client.core.group_models import CommittedOffset, ShiftBy
from headrace.client.core.group_reset import Target, plan_offsets
from headrace.client.core.models import EARLIEST, LATEST, at_time
from headrace.client.core.operations import ClientOperation, Effect, SendAll, Session, Sleep, T
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.network.errors import BrokerUnreachable, UnsupportedApi
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.consumer_group_describe import (
    DescribedGroup as ConsumerGroup,
)
from headrace.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.client_core import ManualClock, make_session, metadata

Answers = dict[type[Message], Callable[[SendRequest], Message | HeadraceError]]
START, END, IN_TIME = 2, 50, 30


class Brokers:
    """Two brokers: groups whose names begin with "b" are coordinated by the second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.session: Session = make_session(self.clock)
        self.asked: list[SendRequest] = []
        self.offsets: dict[str, dict[int, int]] = {}
        self.answers: Answers = {
            MetadataRequest: lambda _: self._metadata(),
            FindCoordinatorRequest: self._find,
            OffsetFetchRequest: self._fetch,
            ListOffsetsRequest: self._list,
        }

    def run(self, operation: ClientOperation[T]) -> T:
        answer: object = None
        try:
            while True:
                effect: Effect = (
                    operation.throw(answer)
                    if isinstance(answer, HeadraceError)
                    else operation.send(answer)
                )
                if isinstance(effect, Sleep):
                    self.clock.ms += effect.ms
                    answer = None
                elif isinstance(effect, SendAll):
                    answer = [self._answer(ask) for ask in effect.requests]
                else:
                    answer = self._answer(effect)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _answer(self, send: SendRequest) -> Message | HeadraceError:
        self.asked.append(send)
        return self.answers[type(send.request)](send)

    def nodes(self, kind: type[Message]) -> list[int]:
        return [ask.node for ask in self.asked if isinstance(ask.request, kind)]

    def _metadata(self) -> MetadataResponse:
        return metadata(3, brokers=(0, 1))

    def _find(self, send: SendRequest) -> Message:
        assert isinstance(send.request, FindCoordinatorRequest)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=int(key.startswith("b")), host="h", port=1)
                for key in send.request.coordinator_keys
            ]
        )

    def _fetch(self, send: SendRequest) -> Message:
        assert isinstance(send.request, OffsetFetchRequest)
        groups = []
        for asked in send.request.groups:
            parts = [
                OffsetFetchResponsePartitions(
                    partition_index=number, committed_offset=offset, metadata=""
                )
                for number, offset in self.offsets.get(asked.group_id, {}).items()
            ]
            topic = OffsetFetchResponseTopics(name="t", partitions=parts)
            groups.append(OffsetFetchResponseGroup(group_id=asked.group_id, topics=[topic]))
        return OffsetFetchResponse(groups=groups)

    def _list(self, send: SendRequest) -> Message:
        assert isinstance(send.request, ListOffsetsRequest)
        places = {-2: START, -1: END, 1_000: IN_TIME}
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            offset=places.get(part.timestamp, -1),
                            timestamp=-1,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in send.request.topics
            ]
        )


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def test_groups_are_listed_from_every_broker_by_name() -> None:
    brokers = Brokers()
    brokers.answers[ListGroupsRequest] = lambda ask: ListGroupsResponse(
        groups=[
            ListedGroup(group_id=f"g{1 - ask.node}", protocol_type="consumer", group_type="Classic")
        ]
    )
    listed = brokers.run(list_groups(brokers.session, (), ()))
    assert [(each.group_id, each.group_type) for each in listed] == [
        ("g0", "classic"),
        ("g1", "classic"),
    ]


def test_each_coordinator_is_asked_about_its_own_groups() -> None:
    brokers = Brokers()
    brokers.answers[DeleteGroupsRequest] = lambda ask: DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=each) for each in names(ask)]
    )

    def names(send: SendRequest) -> list[str]:
        assert isinstance(send.request, DeleteGroupsRequest)
        return send.request.groups_names

    brokers.run(delete_groups(brokers.session, ["a1", "b1", "a2"]))
    deleting = [ask for ask in brokers.asked if isinstance(ask.request, DeleteGroupsRequest)]
    assert [(ask.node, names(ask)) for ask in deleting] == [(0, ["a1", "a2"]), (1, ["b1"])]


def test_only_groups_whose_coordinator_moved_are_asked_about_again() -> None:
    brokers = Brokers()
    moved = [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]

    def delete(send: SendRequest) -> Message:
        assert isinstance(send.request, DeleteGroupsRequest)
        code = moved.pop(0) if send.node == 1 else 0
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=each, error_code=code)
                for each in send.request.groups_names
            ]
        )

    brokers.answers[DeleteGroupsRequest] = delete
    brokers.run(delete_groups(brokers.session, ["a", "b"]))
    assert brokers.nodes(DeleteGroupsRequest) == [0, 1, 1]
    assert len(brokers.nodes(FindCoordinatorRequest)) == 2


def test_a_coordinator_that_cannot_be_reached_is_looked_for_anew() -> None:
    brokers = Brokers()
    failures: list[HeadraceError] = [BrokerUnreachable("gone")]
    done = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="a")])
    brokers.answers[DeleteGroupsRequest] = lambda _: failures.pop() if failures else done
    brokers.run(delete_groups(brokers.session, ["a"]))
    assert len(brokers.nodes(FindCoordinatorRequest)) == 2


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (ErrorCode.NON_EMPTY_GROUP, GroupInUse, "group 'a' has members"),
        (ErrorCode.GROUP_ID_NOT_FOUND, ApiError, "group 'a' does not exist"),
    ],
)
def test_a_refused_deletion_says_why(code: ErrorCode, kind: type[ApiError], said: str) -> None:
    brokers = Brokers()
    result = DeletableGroupResult(group_id="a", error_code=code)
    brokers.answers[DeleteGroupsRequest] = lambda _: DeleteGroupsResponse(results=[result])
    with pytest.raises(kind, match=said):
        brokers.run(delete_groups(brokers.session, ["a"]))


@pytest.mark.parametrize("is_old_broker", [True, False])
def test_a_group_unknown_to_the_new_protocol_is_described_as_a_classic_one(
    is_old_broker: bool,
) -> None:
    brokers = Brokers()
    unknown = ConsumerGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        group_id="a",
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
    classic = DescribedGroup(
        group_id="a",
        group_state="Empty",
        protocol_type="consumer",
        protocol_data="",
        members=[],
    )
    brokers.answers[ConsumerGroupDescribeRequest] = lambda _: (
        UnsupportedApi("not offered")
        if is_old_broker
        else ConsumerGroupDescribeResponse(groups=[unknown])
    )
    brokers.answers[DescribeGroupsRequest] = lambda _: DescribeGroupsResponse(groups=[classic])
    described = brokers.run(describe_groups(brokers.session, ["a"]))["a"]
    assert (described.group_type, described.state, described.coordinator) == ("classic", "Empty", 0)


def test_a_dead_group_of_an_old_answer_does_not_exist() -> None:
    brokers = Brokers()
    dead = DescribedGroup(
        group_id="a", group_state="Dead", protocol_type="", protocol_data="", members=[]
    )
    brokers.answers[ConsumerGroupDescribeRequest] = lambda _: UnsupportedApi("not offered")
    brokers.answers[DescribeGroupsRequest] = lambda _: DescribeGroupsResponse(groups=[dead])
    with pytest.raises(ApiError, match="group 'a' does not exist"):
        brokers.run(describe_groups(brokers.session, ["a"]))


def test_offsets_of_a_group_in_use_are_not_moved() -> None:
    brokers = Brokers()
    refused = OffsetCommitResponsePartition(
        partition_index=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID
    )
    topic = OffsetCommitResponseTopic(name="t", partitions=[refused])
    brokers.answers[OffsetCommitRequest] = lambda _: OffsetCommitResponse(topics=[topic])
    with pytest.raises(GroupInUse, match="has members"):
        brokers.run(alter_offsets(brokers.session, "a", {tp(0): CommittedOffset(3)}))


def test_the_lag_of_several_groups_takes_one_request_per_broker_and_kind() -> None:
    brokers = Brokers()
    brokers.offsets = {"a": {0: 20, 1: END}, "b": {2: END + 5}}
    lags = brokers.run(group_lags(brokers.session, ["a", "b", "new"], members=False))
    found = {group: [(each.committed, each.lag) for each in lags[group]] for group in lags}
    assert found == {"a": [(20, 30), (END, 0)], "b": [(END + 5, 0)], "new": []}
    assert brokers.nodes(OffsetFetchRequest) == [0, 1]
    assert brokers.nodes(ListOffsetsRequest) == [0]


def test_a_commit_below_the_log_start_tells_how_much_was_deleted_unread() -> None:
    brokers = Brokers()
    brokers.offsets = {"a": {0: START - 2, 1: START + 1}}
    lags = brokers.run(group_lags(brokers.session, ["a"], members=False, starts=True))["a"]
    assert [(each.start, each.deleted) for each in lags] == [(START, 2), (START, 0)]
    (unasked, _) = brokers.run(group_lags(brokers.session, ["a"], members=False))["a"]
    assert (unasked.start, unasked.deleted) == (None, 0)


def test_ends_that_nobody_can_tell_leave_the_lag_unknown_and_hold_up_nobody() -> None:
    brokers = Brokers()
    brokers.offsets = {"a": {0: 20, 7: 1}}
    brokers.answers[ListOffsetsRequest] = lambda _: BrokerUnreachable("gone")
    lags = brokers.run(group_lags(brokers.session, ["a"], members=False))["a"]
    assert [(each.committed, each.end, each.lag) for each in lags] == [
        (20, None, None),
        (1, None, None),
    ]
    assert len(brokers.nodes(ListOffsetsRequest)) == 2, "a second chance, and no third"
    assert brokers.clock.ms < 1_000


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (EARLIEST, START),
        (LATEST, END),
        (at_time(1_000), IN_TIME),
        (at_time(9_999), END),
        (7, 7),
        (0, START),
        (99, END),
        (ShiftBy(5), 25),
        (ShiftBy(-5), 15),
        (ShiftBy(-100), START),
    ],
)
def test_a_reset_is_planned_within_what_the_log_has(target: Target, after: int) -> None:
    brokers = Brokers()
    brokers.offsets = {"a": {0: 20}}
    [move] = brokers.run(plan_offsets(brokers.session, "a", {tp(0): target}))
    assert (move.before, move.after, move.start, move.end) == (20, after, START, END)


def test_there_is_no_shift_without_an_offset() -> None:
    brokers = Brokers()
    with pytest.raises(ApiError, match="nothing to shift"):
        brokers.run(plan_offsets(brokers.session, "a", {tp(1): ShiftBy(1)}))
