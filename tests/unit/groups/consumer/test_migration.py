"""Groups that change their protocol while they live, and classic members in consumer groups."""

import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups import consumer_group_requests
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.settings import MigrationPolicy
from headrace.groups.result import ClientInfo
from headrace.protocol.messages.join_group import JoinGroupResponse
from tests.support.consumer_groups import GROUP, Client, Coordinator, settle
from tests.support.migrating_members import ClassicClient


@pytest.fixture
def coordinator() -> Coordinator:
    return made()


def made(**settings: Any) -> Coordinator:
    coordinator = Coordinator(**settings)
    coordinator.set_topic("t", 4)
    return coordinator


def classic_group(coordinator: Coordinator, **fields: Any) -> ClassicClient:
    """A stable classic group of one member that owns everything."""
    member = ClassicClient(coordinator, **fields)
    member.enter()
    coordinator.advance(3_000)
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    (member.member_id,) = group.members
    member.generation = group.generation
    assert member.sync({member.member_id: {"t": [0, 1, 2, 3]}}) is ErrorCode.NONE
    assert group.state is State.STABLE
    return member


def owners(coordinator: Coordinator) -> dict[str, set[int]]:
    return {
        member.member_id: {partition.partition for partition in member.assigned}
        for member in coordinator.group.members.values()
    }


def timed(coordinator: Coordinator) -> set[str]:
    """Members that some timer runs for."""
    return {member_id for member_id, _ in coordinator.group.timers.expired(sys.maxsize)}


def run(classic: Sequence[ClassicClient], modern: Sequence[Client], rounds: int = 12) -> None:
    """Heartbeats of everybody, until all is quiet."""
    for _ in range(rounds):
        for member in classic:
            member.follow()
        for client in modern:
            client.beat(classic[0].coordinator)
            client.reconcile()


# Upgrade


def test_a_consumer_heartbeat_upgrades_a_classic_group(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    generation = classic.generation
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    group = coordinator.group
    assert group.epoch == generation + 1
    assert owners(coordinator) == {classic.member_id: {0, 1, 2, 3}, "m": set()}
    assert group.members[classic.member_id].uses_classic_protocol
    assert coordinator.restarted.groups == coordinator.shard.groups


def test_a_classic_member_hands_over_by_rejoining_with_less(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic.join()
    assert joined is not None
    assert (joined.leader, joined.members) == ("", [])
    assert joined.protocol_name == "cooperative-sticky"
    assert classic.sync() is ErrorCode.NONE
    assert len(classic.owned["t"]) == 2
    modern.beat(coordinator)
    assert modern.target == set(), "not before the classic member has said that it gave them up"

    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    classic.join()
    assert classic.sync() is ErrorCode.NONE
    assert classic.beat() is ErrorCode.NONE
    modern.beat(coordinator)
    assert len(modern.target) == 2
    assert coordinator.group.state_name() == "Stable"


def test_an_eager_member_is_called_back_when_its_share_is_free(coordinator: Coordinator) -> None:
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    modern.reconcile()
    classic = ClassicClient(coordinator, protocols=("range",))
    classic.enter()
    assert classic.sync() is ErrorCode.NONE
    assert classic.owned == {}
    assert classic.beat() is ErrorCode.NONE, "what it shall get is not free yet"
    modern.beat(coordinator)
    modern.reconcile()
    modern.beat(coordinator)
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    classic.join()
    classic.sync()
    assert len(classic.owned["t"]) == 2


def test_the_offsets_of_an_upgraded_group_stay(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    Client("m", ["t"]).beat(coordinator)
    group = coordinator.group
    assert group.subscription()("t")
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_wait_for_a_rebalance_are_called_into_the_new_group(
    coordinator: Coordinator,
) -> None:
    classic_group(coordinator)
    waiting = ClassicClient(coordinator)
    assert waiting.enter() is None, "parked until the other one joins too"
    result = coordinator.new_result()
    client = ClientInfo("modern", "/127.0.0.1", 1, "unused")
    request = Client("m", ["t"]).request()
    consumer_group_requests.consumer_heartbeat(coordinator.shard, request, client, "modern", result)
    (answer,) = (each.response for each in result.replies if each.reply is waiting)
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_classic_group_is_simply_replaced(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    classic.leave()
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    assert len(modern.target) == 4
    assert coordinator.restarted.groups == coordinator.shard.groups


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_policy_can_forbid_the_upgrade(policy: MigrationPolicy) -> None:
    coordinator = made(migration_policy=policy)
    classic = classic_group(coordinator)
    assert Client("m", ["t"]).beat(coordinator) is ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.beat() is ErrorCode.NONE


def test_a_group_of_something_else_than_consumers_is_not_upgraded(
    coordinator: Coordinator,
) -> None:
    connect = ClassicClient(coordinator)
    connect.join(protocol_type="connect", metadata=b"x")
    connect.join(protocol_type="connect", metadata=b"x")
    assert Client("m", ["t"]).beat(coordinator) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_member_with_nothing_in_common_with_the_others_is_refused(
    coordinator: Coordinator,
) -> None:
    classic_group(coordinator)
    Client("m", ["t"]).beat(coordinator)
    stranger = ClassicClient(coordinator, protocols=("range",))
    with pytest.raises(ApiError) as caught:
        stranger.join()
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger.protocols = ("cooperative-sticky",)
    with pytest.raises(ApiError) as caught:
        stranger.join(metadata=b"\x00\x01\xff")
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Downgrade


def test_the_last_consumer_member_takes_the_protocol_with_it(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    run([classic], [modern])
    epoch = coordinator.group.epoch
    modern.leave(coordinator)
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.generation, group.state) == (epoch, State.PREPARING_REBALANCE)
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic.join()
    assert joined is not None
    assert joined.leader == classic.member_id
    assert classic.sync({classic.member_id: {"t": [0, 1, 2, 3]}}) is ErrorCode.NONE
    assert classic.owned == {"t": [0, 1, 2, 3]}


def test_a_crash_of_the_last_consumer_member_downgrades_too(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    Client("m", ["t"]).beat(coordinator)
    for _ in range(10):
        coordinator.advance(5_000)
        if isinstance(coordinator.shard.groups[GROUP], ConsumerGroup):
            classic.follow()
    assert isinstance(coordinator.shard.groups[GROUP], ClassicGroup)


def test_a_restart_after_a_downgrade_finds_the_classic_group(coordinator: Coordinator) -> None:
    classic = classic_group(coordinator)
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    run([classic], [modern])
    modern.leave(coordinator)
    coordinator.restart()
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.members.keys() == {classic.member_id}
    assert classic.beat() is ErrorCode.NONE


def test_a_policy_can_keep_a_group_on_the_new_protocol() -> None:
    coordinator = made(migration_policy=MigrationPolicy.UPGRADE)
    classic = classic_group(coordinator)
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    modern.leave(coordinator)
    run([classic], [])
    assert owners(coordinator) == {classic.member_id: {0, 1, 2, 3}}


def test_a_static_classic_member_can_take_the_place_of_a_consumer_one(
    coordinator: Coordinator,
) -> None:
    modern = Client("m", ["t"], instance_id="i")
    modern.beat(coordinator)
    other = ClassicClient(coordinator)
    other.enter()
    run([other], [modern])
    modern.leave(coordinator, -2)
    back = ClassicClient(coordinator, instance_id="i")
    joined = back.join()
    assert joined is not None
    assert joined.error_code == ErrorCode.NONE
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup), "nobody speaks the consumer protocol any more"
    assert group.state is State.STABLE
    assert back.sync() is ErrorCode.NONE
    assert len(back.owned["t"]) == 2


def test_a_static_member_that_changes_its_protocol_leaves_no_timer_behind(
    coordinator: Coordinator,
) -> None:
    classic_group(coordinator, instance_id="i")
    modern = Client("m", ["t"], instance_id="i")
    assert modern.beat(coordinator) is ErrorCode.NONE
    silent = Client("silent", ["t"])
    silent.beat(coordinator)
    for _ in range(60):
        coordinator.advance(1_000)
        assert modern.beat(coordinator) is ErrorCode.NONE
        modern.reconcile()
    assert coordinator.group.members.keys() == {"m"}, "the silent one is missed"
    assert coordinator.group.state_name() == "Stable"


def test_a_static_member_under_a_new_id_leaves_no_timer_behind(coordinator: Coordinator) -> None:
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    ClassicClient(coordinator, instance_id="i").join()
    back = ClassicClient(coordinator, instance_id="i")
    back.join()
    assert timed(coordinator) <= coordinator.group.members.keys()


# Classic members among others


def test_a_classic_member_needs_its_id_and_its_generation(coordinator: Coordinator) -> None:
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    classic = ClassicClient(coordinator)
    first = classic.join()
    assert first is not None
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    classic.join()
    classic.generation += 5
    assert classic.beat() is ErrorCode.ILLEGAL_GENERATION
    assert classic.sync() is ErrorCode.ILLEGAL_GENERATION
    classic.member_id = "m"
    assert classic.beat() is ErrorCode.UNKNOWN_MEMBER_ID, "m does not speak that protocol"


def test_a_classic_member_that_does_not_sync_or_rejoin_is_removed(
    coordinator: Coordinator,
) -> None:
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    modern.reconcile()
    classic = ClassicClient(coordinator)
    classic.enter()
    for _ in range(5):
        coordinator.advance(4_000)
        modern.beat(coordinator)
        if classic.member_id in coordinator.group.members:
            classic.beat()
    assert classic.member_id not in coordinator.group.members


def test_leaving_by_instance_id_alone_removes_a_static_member(coordinator: Coordinator) -> None:
    modern = Client("m", ["t"])
    modern.beat(coordinator)
    classic = ClassicClient(coordinator, instance_id="i")
    classic.join()
    assert classic.leave(member_id="", group_instance_id="j") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert classic.leave(member_id="x", group_instance_id="i") == [ErrorCode.FENCED_INSTANCE_ID]
    assert classic.leave(member_id="", group_instance_id="i") == [ErrorCode.NONE]
    assert coordinator.group.members.keys() == {"m"}


def test_nobody_owns_a_partition_twice_while_a_group_is_migrated_member_by_member(
    coordinator: Coordinator,
) -> None:
    topic_id: UUID = coordinator.image.topics["t"].id
    classic = [classic_group(coordinator)]
    modern: list[Client] = []
    for number in range(3):
        modern.append(Client(f"m{number}", ["t"]))
        modern[-1].beat(coordinator)
        run(classic, modern)
        taken = [TopicIdPartition(topic_id, n) for each in classic for n in each.owned["t"]]
        taken += [partition for client in modern for partition in client.owned]
        assert len(taken) == len(set(taken)) == 4
    classic[0].leave()
    settle(coordinator, modern)
    assert sum(len(client.owned) for client in modern) == 4
    assert not any(m.uses_classic_protocol for m in coordinator.group.members.values())
    assert coordinator.restarted.groups == coordinator.shard.groups
