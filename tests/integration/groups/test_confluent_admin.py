"""librdkafka's admin calls on groups: listing, describing, offsets, deleting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import ConsumerGroupTopicPartitions as GroupOffsets
from confluent_kafka.admin import AdminClient

from tests.integration.groups.conftest import FilledMaker
from tests.support.brokers import BrokerProcess
from tests.support.group_members import STYLES, members_closed, poll_until, until_shared

_SECONDS = 15


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def _listed(admin: AdminClient, group: str, **filters: Any) -> list[Any]:
    found = admin.list_consumer_groups(request_timeout=_SECONDS, **filters).result()
    assert found.errors == []
    return [each for each in found.valid if each.group_id == group]


def _described(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group], request_timeout=_SECONDS)[group].result()


@pytest.mark.parametrize("style", STYLES)
def test_a_group_is_listed_and_described_while_it_works_and_when_it_is_empty(
    broker: BrokerProcess, admin: AdminClient, filled: FilledMaker, group: str, style: str
) -> None:
    topic = filled(4, 1)
    kind = ConsumerGroupType.CONSUMER if style == "broker" else ConsumerGroupType.CLASSIC
    with members_closed() as member:
        first, second = (
            member(broker.bootstrap_servers, group, [topic], style, client_id=name)
            for name in ("alpha", "beta")
        )
        until_shared(4, first, second)
        (listed,) = _listed(admin, group, types={kind}, states={ConsumerGroupState.STABLE})
        assert (listed.state, listed.type) == (ConsumerGroupState.STABLE, kind)
        assert _listed(admin, group, states={ConsumerGroupState.EMPTY}) == []
        found = _described(admin, group)
        assert (found.state, found.type) == (ConsumerGroupState.STABLE, kind)
        assert (
            found.partition_assignor
            == {
                "eager": "range",
                "cooperative": "cooperative-sticky",
                "broker": "uniform",
            }[style]
        )
        assert found.coordinator.port == broker.port
        shares = {
            each.client_id: {
                (part.topic, part.partition) for part in each.assignment.topic_partitions
            }
            for each in found.members
        }
        assert shares == {"alpha": first.owned, "beta": second.owned}
        assert {each.host for each in found.members} == {"/127.0.0.1"}
    (listed,) = _listed(admin, group)
    assert listed.state == ConsumerGroupState.EMPTY
    assert _described(admin, group).members == []


def test_an_unknown_group_is_described_as_dead(admin: AdminClient, group: str) -> None:
    assert _described(admin, group).state == ConsumerGroupState.DEAD


def _offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([GroupOffsets(group)], request_timeout=_SECONDS)
    found = asked[group].result().topic_partitions
    return {(each.topic, each.partition): each.offset for each in found}


def _alter(admin: AdminClient, group: str, *offsets: TopicPartition) -> None:
    asked = admin.alter_consumer_group_offsets(
        [GroupOffsets(group, list(offsets))], request_timeout=_SECONDS
    )
    for each in asked[group].result().topic_partitions:
        if each.error is not None:
            raise KafkaException(each.error)


def _refusal(action: Callable[[], object]) -> int:
    with pytest.raises(KafkaException) as refused:
        action()
    code: int = refused.value.args[0].code()
    return code


@pytest.mark.parametrize("style", STYLES)
def test_offsets_are_altered_and_groups_deleted_only_without_members(
    broker: BrokerProcess, admin: AdminClient, filled: FilledMaker, group: str, style: str
) -> None:
    topic = filled(2, 10)
    with members_closed() as member:
        one = member(broker.bootstrap_servers, group, [topic], style)
        poll_until(lambda: len(one.read) == 20, "all records", one)
        one.consumer.commit(asynchronous=False)
        assert _offsets(admin, group) == {(topic, 0): 10, (topic, 1): 10}
        assert (
            _refusal(lambda: _alter(admin, group, TopicPartition(topic, 0, 3)))
            == KafkaError.UNKNOWN_MEMBER_ID
        )
        deleting = admin.delete_consumer_groups([group], request_timeout=_SECONDS)[group]
        assert _refusal(deleting.result) == KafkaError.NON_EMPTY_GROUP
    _alter(admin, group, TopicPartition(topic, 0, 3))
    assert _offsets(admin, group) == {(topic, 0): 3, (topic, 1): 10}
    with members_closed() as member:
        back = member(broker.bootstrap_servers, group, [topic], style)
        poll_until(lambda: len(back.read) == 7, "what was reset", back)
        assert sorted(back.read) == [(topic, 0, offset) for offset in range(3, 10)]
    admin.delete_consumer_groups([group], request_timeout=_SECONDS)[group].result()
    assert _listed(admin, group) == []
    assert _offsets(admin, group) == {}
    gone = admin.delete_consumer_groups([group], request_timeout=_SECONDS)[group]
    assert _refusal(gone.result) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_can_be_made_for_a_group_that_never_was(
    admin: AdminClient, filled: FilledMaker, group: str
) -> None:
    topic = filled(1, 10)
    _alter(admin, group, TopicPartition(topic, 0, 7))
    assert _offsets(admin, group) == {(topic, 0): 7}
    missing = TopicPartition(f"{topic}-none", 0, 7)
    assert _refusal(lambda: _alter(admin, group, missing)) == KafkaError.UNKNOWN_TOPIC_OR_PART
