"""Places to begin, positions and commits of a group's consumer, answered by hand."""

from uuid import UUID

import pytest

from headrace.client.core.consumer_settings import ConsumerReset, ConsumerSettings
from headrace.client.core.consumer_state import ConsumerState, find_topics
from headrace.client.core.errors import CommitFailed, NoOffset
from headrace.client.core.group_models import NO_MEMBER, CommittedOffset, GroupIdentity
from headrace.client.core.lookups import MissingTopic
from headrace.client.core.membership import FindTopics
from headrace.client.core.operations import ClientOperation, Effect, SendAll, Session, Sleep, T
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.network.errors import BrokerUnreachable
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest
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
from tests.support.client_core import TOPIC_ID, ManualClock, make_session, metadata

ME = GroupIdentity("me", 4, None)


class Coordinating:
    """A broker that leads topic "t" and coordinates; commits fail with the codes in line."""

    def __init__(self, committed: dict[int, int] | None = None) -> None:
        self.committed = dict(committed or {})
        self.commit_codes: list[int] = []
        self.fetch_codes: list[int] = []
        self.asked: list[Message] = []

    def run(self, operation: ClientOperation[T], clock: ManualClock) -> T:
        """Drive a flow to its end, answering everything it asks."""
        answer: object = None
        try:
            while True:
                if isinstance(answer, HeadraceError):
                    effect: Effect = operation.throw(answer)
                else:
                    effect = operation.send(answer)
                if isinstance(effect, Sleep):
                    clock.ms += effect.ms
                    answer = None
                elif isinstance(effect, SendAll):
                    answer = [self.answer(ask) for ask in effect.requests]
                else:
                    answer = self.answer(effect)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def answer(self, send: SendRequest) -> Message | HeadraceError:
        request = send.request
        self.asked.append(request)
        if isinstance(request, MetadataRequest):
            return metadata(4)
        if isinstance(request, FindCoordinatorRequest):
            found = Coordinator(key=request.key, node_id=0, host="broker-0", port=9092)
            return FindCoordinatorResponse(coordinators=[found])
        if isinstance(request, ListOffsetsRequest):
            return self._list(request)
        if isinstance(request, OffsetFetchRequest):
            return self._fetch(request)
        assert isinstance(request, OffsetCommitRequest)
        return self._commit(request)

    def _list(self, request: ListOffsetsRequest) -> Message:
        places = {-2: 10, -1: 90}
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            offset=places[part.timestamp],
                            timestamp=-1,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch(self, request: OffsetFetchRequest) -> Message:
        wanted = request.groups[0].topics or []
        code = self.fetch_codes.pop(0) if self.fetch_codes else 0
        parts = [
            OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=self.committed.get(number, -1),
                committed_leader_epoch=3 if number in self.committed else -1,
                metadata="",
            )
            for topic in wanted
            for number in topic.partition_indexes
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=parts)]
        group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)
        return OffsetFetchResponse(groups=[group])

    def _commit(self, request: OffsetCommitRequest) -> Message:
        code = self.commit_codes.pop(0) if self.commit_codes else 0
        parts = []
        for part in request.topics[0].partitions:
            parts.append(
                OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
            )
            if not code:
                self.committed[part.partition_index] = part.committed_offset
        topic = OffsetCommitResponseTopic(name="t", partitions=parts)
        return OffsetCommitResponse(topics=[topic])

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(each, kind) for each in self.asked)


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class Scene:
    """A consumer of partitions 0 and 1, and the broker it talks to."""

    def __init__(self, broker: Coordinating, *, reset: ConsumerReset = "earliest") -> None:
        self.clock = ManualClock()
        self.session: Session = make_session(self.clock)
        self.broker = broker
        self.refused: list[tuple[GroupIdentity, ErrorCode]] = []
        settings = ConsumerSettings("g", offset_reset=reset, auto_commit_interval_ms=5_000)
        self.consuming = ConsumerState(self.session, settings, channel=1)
        self.consuming.add([tp(0), tp(1)])

    def find_places(self, identity: GroupIdentity = ME) -> None:
        assert self.consuming.needs_positions(self.clock.ms)
        self.broker.run(self.consuming.update_positions(identity), self.clock)

    def commit(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        operation = self.consuming.commit(offsets, lambda: ME, self._refused)
        self.broker.run(operation, self.clock)

    def _refused(self, member: GroupIdentity, error: HeadraceError) -> None:
        self.refused.append((member, error.code))

    def positions(self) -> dict[int, int]:
        found = self.consuming.positions()
        return {where.partition: place.offset for where, place in found.items()}


def test_a_partition_begins_where_the_group_has_committed_or_where_the_reset_says() -> None:
    scene = Scene(Coordinating({0: 33}))
    scene.find_places()
    assert scene.positions() == {0: 33, 1: 10}
    assert scene.consuming.positions()[tp(0)].leader_epoch == 3
    scene.clock.ms += 1_000
    assert not scene.consuming.needs_positions(scene.clock.ms)


def test_the_reset_may_be_the_end() -> None:
    scene = Scene(Coordinating(), reset="latest")
    scene.find_places()
    assert scene.positions() == {0: 90, 1: 90}


def test_without_a_reset_a_missing_offset_is_an_error() -> None:
    scene = Scene(Coordinating({0: 5}), reset="none")
    scene.find_places()
    assert scene.positions() == {0: 5}
    with pytest.raises(NoOffset, match="group 'g' has no offset for t-1"):
        scene.consuming.fetcher.raise_error()


def test_the_member_says_who_it_is_when_it_asks_for_offsets() -> None:
    scene = Scene(Coordinating({0: 5, 1: 6}))
    scene.find_places()
    asked = [each for each in scene.broker.asked if isinstance(each, OffsetFetchRequest)]
    group = asked[0].groups[0]
    assert (group.member_id, group.member_epoch, asked[0].require_stable) == ("me", 4, True)


def test_a_seek_while_offsets_are_fetched_wins() -> None:
    scene = Scene(Coordinating({0: 5, 1: 6}))
    operation = scene.consuming.update_positions(ME)
    answer: Message | HeadraceError | None = None
    effect = operation.send(None)
    while not (isinstance(effect, SendRequest) and isinstance(effect.request, OffsetFetchRequest)):
        assert isinstance(effect, SendRequest)
        effect = operation.send(scene.broker.answer(effect))
    scene.consuming.fetcher.seek(tp(0), 77)
    scene.consuming.remove([tp(1)])
    scene.consuming.add([tp(1)])
    answer = scene.broker.answer(effect)
    with pytest.raises(StopIteration):
        operation.send(answer)
    assert scene.positions() == {0: 77}
    assert scene.consuming.needs_positions(scene.clock.ms + 1_000)


def test_partitions_that_stay_keep_their_positions_when_others_come_and_go() -> None:
    scene = Scene(Coordinating({0: 5, 1: 6, 2: 7}))
    scene.find_places()
    cursor = scene.consuming.fetcher.cursor(tp(0))
    cursor.position = 8
    scene.consuming.remove([tp(1)])
    scene.consuming.add([tp(2)])
    scene.clock.ms += 1_000
    scene.find_places()
    assert scene.consuming.fetcher.cursor(tp(0)) is cursor
    assert scene.positions() == {0: 8, 2: 7}


def test_a_coordinator_that_loads_is_asked_again() -> None:
    broker = Coordinating({0: 5, 1: 6})
    broker.fetch_codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    scene = Scene(broker)
    scene.find_places()
    assert scene.positions() == {0: 5, 1: 6}
    assert broker.count(FindCoordinatorRequest) == 2, "looked for anew when it had moved"


def test_a_failed_round_is_not_repeated_at_once() -> None:
    scene = Scene(Coordinating())
    operation = scene.consuming.update_positions(ME)
    operation.send(None)
    with pytest.raises(BrokerUnreachable):
        operation.throw(BrokerUnreachable("gone"))
    assert not scene.consuming.needs_positions(scene.clock.ms)
    assert scene.consuming.next_position_update_ms(scene.clock.ms) == 1_000
    scene.clock.ms += 1_000
    assert scene.consuming.needs_positions(scene.clock.ms)


def test_a_topic_that_stays_away_is_looked_for_ever_more_seldom() -> None:
    scene = Scene(Coordinating())
    scene.consuming.add([TopicPartition("gone", 0)])
    waits = []
    for _ in range(6):
        scene.find_places()
        waits.append(scene.consuming.next_position_update_ms(scene.clock.ms) - scene.clock.ms)
        scene.clock.ms += waits[-1]
    assert waits == [100, 200, 400, 800, 1000, 1000]
    assert scene.positions() == {0: 10, 1: 10}, "the others are not held up"


def test_a_commit_carries_epochs_metadata_and_the_member() -> None:
    scene = Scene(Coordinating())
    scene.commit({tp(1): CommittedOffset(8, leader_epoch=2, metadata="note")})
    [request] = [each for each in scene.broker.asked if isinstance(each, OffsetCommitRequest)]
    assert (request.member_id, request.generation_id_or_member_epoch) == ("me", 4)
    part = request.topics[0].partitions[0]
    assert (part.committed_offset, part.committed_leader_epoch) == (8, 2)
    assert part.committed_metadata == "note"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    ],
)
def test_a_commit_is_repeated_where_that_can_help(code: ErrorCode) -> None:
    broker = Coordinating()
    broker.commit_codes = [code, code]
    Scene(broker).commit({tp(0): CommittedOffset(8)})
    assert broker.committed == {0: 8}


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_commit_of_what_went_to_another_meanwhile_is_not_repeated(comes_back: bool) -> None:
    """Under the new epoch the broker would let it overwrite what the new owner committed."""
    broker = Coordinating()
    broker.commit_codes = [ErrorCode.STALE_MEMBER_EPOCH]
    scene = Scene(broker)

    def whoami() -> GroupIdentity:
        scene.consuming.remove([tp(0)])
        if comes_back:
            scene.consuming.add([tp(0)])
        return ME

    operation = scene.consuming.commit({tp(0): CommittedOffset(8)}, whoami, scene._refused)
    with pytest.raises(CommitFailed, match="changed hands"):
        broker.run(operation, scene.clock)
    assert broker.committed == {}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_a_commit_of_a_member_left_behind_fails_for_good(code: ErrorCode) -> None:
    broker = Coordinating()
    broker.commit_codes = [code]
    scene = Scene(broker)
    with pytest.raises(CommitFailed) as failed:
        scene.commit({tp(0): CommittedOffset(8)})
    assert failed.value.code is code
    assert scene.refused == [(ME, code)]
    assert "max_poll_interval_ms" in failed.value.hint


def test_a_commit_for_a_topic_that_does_not_exist_fails_at_once() -> None:
    broker = Coordinating()
    broker.commit_codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with pytest.raises(MissingTopic):
        Scene(broker).commit({tp(0): CommittedOffset(8)})


def test_a_refusal_that_no_retry_can_change_is_raised_as_it_is() -> None:
    broker = Coordinating()
    broker.commit_codes = [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    with pytest.raises(ApiError) as refused:
        Scene(broker).commit({tp(0): CommittedOffset(8)})
    assert refused.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_automatic_commits_are_due_every_interval_and_leave_out_what_is_committed() -> None:
    scene = Scene(Coordinating({0: 5, 1: 6}))
    scene.find_places()
    assert scene.consuming.is_commit_due(scene.clock.ms)
    assert scene.consuming.uncommitted() == {}
    assert not scene.consuming.is_commit_due(scene.clock.ms + 4_999)
    scene.consuming.fetcher.cursor(tp(1)).position = 9
    assert scene.consuming.is_commit_due(scene.clock.ms + 5_000)
    wanted = scene.consuming.uncommitted()
    assert wanted == {tp(1): CommittedOffset(9, 3)}
    assert scene.consuming.uncommitted([tp(0)]) == {}
    scene.commit(wanted)
    assert scene.consuming.uncommitted() == {}


def test_committing_nothing_asks_nobody() -> None:
    scene = Scene(Coordinating())
    scene.commit({})
    assert scene.broker.asked == []


def test_topics_are_seen_by_id_by_name_or_all_of_them() -> None:
    broker, clock = Coordinating(), ManualClock()
    session = make_session(clock)
    by_id = broker.run(find_topics(session, FindTopics(ids=frozenset({TOPIC_ID}))), clock)
    assert [(each.name, each.partitions) for each in by_id] == [("t", 4)]
    again = broker.run(find_topics(session, FindTopics(ids=frozenset({TOPIC_ID}))), clock)
    assert (again, broker.count(MetadataRequest)) == (by_id, 1)
    assert broker.run(find_topics(session, FindTopics(names=None)), clock) == by_id
    named = broker.run(find_topics(session, FindTopics(names=frozenset({"t", "u"}))), clock)
    assert named == by_id
    unknown = broker.run(find_topics(session, FindTopics(ids=frozenset({UUID(int=8)}))), clock)
    assert unknown == []


def test_one_who_is_nobody_asks_for_offsets_without_a_name() -> None:
    scene = Scene(Coordinating({0: 5, 1: 6}))
    scene.find_places(NO_MEMBER)
    asked = [each for each in scene.broker.asked if isinstance(each, OffsetFetchRequest)]
    assert (asked[0].groups[0].member_id, asked[0].groups[0].member_epoch) == (None, -1)
