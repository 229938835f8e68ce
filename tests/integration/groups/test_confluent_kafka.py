"""librdkafka's members, classic and by the new protocol: sharing, moving, coming back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.integration.groups.conftest import FilledMaker
from tests.support.brokers import BrokerProcess
from tests.support.group_members import (
    STYLES,
    Member,
    members_closed,
    poll_until,
    until_shared,
)
from tests.support.records import fill
from tests.support.topics import Topics

MemberMaker = Callable[..., Member]
each_style = pytest.mark.parametrize("style", STYLES)


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[MemberMaker]:
    """Makes members of this broker's groups."""
    with members_closed() as make:
        yield lambda *arguments, **settings: make(broker.bootstrap_servers, *arguments, **settings)


def _everything(topic: str, partitions: int, records: int) -> set[tuple[str, int, int]]:
    return {(topic, index, offset) for index in range(partitions) for offset in range(records)}


@each_style
def test_members_share_the_work_and_no_record_is_read_twice(
    broker: BrokerProcess, filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(4, 10)
    first = member(group, [topic], style)
    poll_until(lambda: len(first.read) == 40, "the first member to read all", first)
    second = member(group, [topic], style)
    until_shared(4, first, second)
    fill(broker.bootstrap_servers, topic, 4, 10, first=10)
    poll_until(lambda: len(first.read) + len(second.read) >= 80, "shared work", first, second)
    assert len(second.read) == 20
    second.close()  # commits what it has read, and leaves
    until_shared(4, first)
    fill(broker.bootstrap_servers, topic, 4, 5, first=20)
    poll_until(lambda: len(first.read) + len(second.read) >= 100, "the rest", first)
    assert sorted(first.read + second.read) == sorted(_everything(topic, 4, 25))


@each_style
def test_only_what_moves_is_taken_away_unless_the_group_is_eager(
    filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(4, 1)
    first = member(group, [topic], style)
    until_shared(4, first)
    before = set(first.owned)
    second = member(group, [topic], style)
    until_shared(4, first, second)
    revoked = set().union(*first.revoked)
    assert first.lost == []
    if style == "eager":
        assert revoked == before
    else:
        assert revoked == before - first.owned
        assert len(revoked) == 2
    assert second.owned == before - first.owned


@each_style
def test_a_static_member_that_restarts_gets_its_partitions_back_and_disturbs_nobody(
    filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(4, 1)
    first = member(group, [topic], style, group_instance_id="one")
    until_shared(4, first)
    second = member(group, [topic], style, group_instance_id="two")
    until_shared(4, first, second)
    kept, revoked = set(second.owned), len(first.revoked)
    second.close()
    again = member(group, [topic], style, group_instance_id="two")
    poll_until(lambda: again.owned == kept, "the old partitions", first, again)
    assert len(first.revoked) == revoked
    assert first.lost == []


@each_style
def test_a_second_instance_of_a_static_member_fences_or_is_refused(
    filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(2, 1)
    first = member(group, [topic], style, group_instance_id="one")
    until_shared(2, first)
    second = member(group, [topic], style, group_instance_id="one")
    if style == "broker":
        # The new protocol protects the one that is there.
        poll_until(lambda: bool(second.errors), "a refusal", first, second)
        assert second.errors[0].code() == KafkaError._FATAL
        assert len(first.owned) == 2
    else:
        poll_until(lambda: bool(first.errors), "the first to be fenced", first, second)
        assert first.errors[0].code() == KafkaError._FATAL
        poll_until(lambda: len(second.owned) == 2, "the second to own all", second)


@each_style
def test_paused_partitions_rest_and_seeking_reads_again(
    broker: BrokerProcess, filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(2, 10)
    one = member(group, [topic], style)
    poll_until(lambda: len(one.read) == 20, "all records", one)
    one.consumer.pause([TopicPartition(topic, 0)])
    fill(broker.bootstrap_servers, topic, 2, 5, first=10)
    poll_until(lambda: len(one.read) == 25, "the records of one partition", one)
    assert {read[1] for read in one.read[20:]} == {1}
    one.consumer.resume([TopicPartition(topic, 0)])
    poll_until(lambda: len(one.read) == 30, "the records of the other", one)
    assert {read[1] for read in one.read[25:]} == {0}
    one.consumer.seek(TopicPartition(topic, 1, 12))
    poll_until(lambda: len(one.read) == 33, "records read again", one)
    assert [read[1:] for read in one.read[30:]] == [(1, 12), (1, 13), (1, 14)]


@each_style
def test_a_commit_keeps_its_metadata_and_the_next_member_goes_on_there(
    filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(1, 10)
    told: list[tuple[KafkaError | None, list[TopicPartition]]] = []
    first = member(
        group,
        [topic],
        style,
        enable_auto_commit=False,
        on_commit=lambda error, offsets: told.append((error, offsets)),
    )
    poll_until(lambda: len(first.read) == 10, "all records", first)
    done = first.consumer.commit(
        offsets=[TopicPartition(topic, 0, 4, "so far")], asynchronous=False
    )
    assert done is not None
    assert [(each.offset, each.error) for each in done] == [(4, None)]
    (found,) = first.consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert (found.offset, found.metadata) == (4, "so far")
    first.consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=True)
    poll_until(lambda: bool(told), "the commit to be told", first)
    assert [(error, offsets[0].offset) for error, offsets in told] == [(None, 7)]
    first.close()
    second = member(group, [topic], style, enable_auto_commit=False)
    poll_until(lambda: len(second.read) == 3, "what was not committed", second)
    assert [read[2] for read in second.read] == [7, 8, 9]


@each_style
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_without_a_committed_offset_reading_starts_where_the_client_says(
    broker: BrokerProcess,
    filled: FilledMaker,
    member: MemberMaker,
    group: str,
    style: str,
    reset: str,
) -> None:
    topic = filled(1, 5)
    one = member(group, [topic], style, auto_offset_reset=reset)
    if reset == "error":
        poll_until(lambda: bool(one.errors), "an error", one)
        assert one.errors[0].code() == KafkaError._AUTO_OFFSET_RESET
        return
    if reset == "latest":
        until_shared(1, one)
        _until_positioned(one, topic)
    fill(broker.bootstrap_servers, topic, 1, 5, first=5)
    expected = list(range(5 if reset == "latest" else 0, 10))
    poll_until(lambda: len(one.read) >= len(expected), "records", one)
    assert [read[2] for read in one.read] == expected


def _until_positioned(member: Member, topic: str) -> None:
    """Until it has looked up the end: the high watermark comes with the first fetch."""
    partition = TopicPartition(topic, 0)

    def fetched() -> bool:
        return member.consumer.get_watermark_offsets(partition, cached=True) == (0, 5)

    poll_until(fetched, "the first fetch", member)


def test_an_offset_out_of_range_is_reset(
    filled: FilledMaker, member: MemberMaker, group: str
) -> None:
    topic = filled(1, 5)
    first = member(group, [], "eager")
    first.consumer.commit(offsets=[TopicPartition(topic, 0, 1000)], asynchronous=False)
    first.subscribe([topic])
    poll_until(lambda: len(first.read) == 5, "records from the start", first)


def test_a_group_without_members_commits_and_is_listed(
    broker: BrokerProcess, filled: FilledMaker, member: MemberMaker, group: str
) -> None:
    topic = filled(1, 10)
    alone = member(group, [], "eager", enable_auto_commit=False)
    alone.consumer.assign([TopicPartition(topic, 0, 0)])
    poll_until(lambda: len(alone.read) == 10, "all records", alone)
    alone.consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    alone.close()
    admin = Topics(broker.bootstrap_servers).admin
    listed = admin.list_consumer_groups(request_timeout=10).result()
    (found,) = [each for each in listed.valid if each.group_id == group]
    assert found.is_simple_consumer_group
    again = member(group, [], "eager")
    again.consumer.assign([TopicPartition(topic, 0)])
    poll_until(lambda: len(again.read) == 4, "what was not committed", again)


@each_style
def test_a_pattern_subscribes_to_every_topic_that_fits(
    topics: Topics, member: MemberMaker, group: str, style: str
) -> None:
    prefix = f"pattern-{uuid.uuid4().hex[:8]}"
    for name, partitions in (("one", 1), ("two", 2)):
        topics.create(f"{prefix}-{name}", partitions)
    topics.create(f"not-{prefix}", 1)
    one = member(group, [f"^{prefix}-.*"], style, topic_metadata_refresh_interval_ms=200)
    until_shared(3, one)
    assert {topic for topic, _ in one.owned} == {f"{prefix}-one", f"{prefix}-two"}
    if style != "broker":  # there the broker looks for new topics, every ten seconds at most
        topics.create(f"{prefix}-three", 2)
        until_shared(5, one)


@each_style
def test_new_partitions_are_shared_out(
    topics: Topics, member: MemberMaker, group: str, style: str
) -> None:
    topic = topics.create(f"grows-{group}", 2)
    one = member(group, [topic], style, topic_metadata_refresh_interval_ms=200)
    until_shared(2, one)
    topics.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
    until_shared(4, one)


def test_a_member_that_stops_polling_is_put_out_and_comes_back(
    filled: FilledMaker, member: MemberMaker, group: str
) -> None:
    topic = filled(2, 1)
    short = {"session_timeout_ms": 1000, "max_poll_interval_ms": 1000}
    first = member(group, [topic], "eager", **short)
    second = member(group, [topic], "eager", **short)
    until_shared(2, first, second)
    poll_until(lambda: len(second.owned) == 2, "the one that polls to get all", second)
    poll_until(lambda: bool(first.errors), "the other to be told", first)
    assert first.errors[0].code() == KafkaError._MAX_POLL_EXCEEDED
    until_shared(2, first, second)


def test_offsets_of_a_deleted_topic_are_forgotten(
    topics: Topics, filled: FilledMaker, member: MemberMaker, group: str
) -> None:
    topic, other = filled(1, 5), filled(1, 5)
    one = member(group, [], "eager")
    both = [TopicPartition(topic, 0, 3), TopicPartition(other, 0, 4)]
    one.consumer.commit(offsets=both, asynchronous=False)
    topics.delete(topic)
    topics.create(topic)
    deadline = time.monotonic() + 10
    while True:
        found = one.consumer.committed([TopicPartition(topic, 0), TopicPartition(other, 0)], 10)
        if [each.offset for each in found] == [-1001, 4]:
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@each_style
def test_a_commit_of_a_member_that_was_put_out_is_refused(
    filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(2, 5)
    first = member(group, [topic], style, enable_auto_commit=False)
    poll_until(lambda: len(first.read) == 10, "all records", first)
    outsider = member(group, [], style)
    with pytest.raises(KafkaException) as refused:
        outsider.consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    (found,) = first.consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert found.offset == -1001
