"""Keys of consumer groups: the broker's, and those of one group."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.client import Client, NewTopic
from headrace.core.errors import ErrorCode, InvalidConfig
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.testing import Broker
from tests.support.config_effects import effect_of, eventually
from tests.support.group_wire import GroupWire, subscription

GROUP_RESOURCE = 32
# Below the usual limits, so that a test can see a session end.
QUICK = {
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.min.heartbeat.interval.ms": "1",
}


@contextmanager
def wire_to(settings: dict[str, str], partitions: int = 4) -> Iterator[GroupWire]:
    with Broker(settings={"group.initial.rebalance.delay.ms": "0"} | settings) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_topics([NewTopic("t", partitions)])
        wire = GroupWire(broker.port)
        try:
            wire.find("g")
            yield wire
        finally:
            wire.close()


def join(
    wire: GroupWire, member: str, group: str = "g", assignor: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return wire.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            server_assignor=assignor,
            topic_partitions=[],
        ),
        1,
        ConsumerGroupHeartbeatResponse,
    )


def members(wire: GroupWire, group: str = "g") -> set[str]:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (described,) = wire.ask(request, 1, ConsumerGroupDescribeResponse).groups
    return {member.member_id for member in described.members}


def alter(wire: GroupWire, group: str, name: str, value: str) -> tuple[int, str | None]:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = wire.ask(request, 1, IncrementalAlterConfigsResponse).responses
    return answer.error_code, answer.error_message


@effect_of("group.consumer.session.timeout.ms")
def test_a_silent_member_is_removed_after_the_session() -> None:
    quick = {"group.consumer.session.timeout.ms": "50"}
    interval = {"group.consumer.heartbeat.interval.ms": "10"}
    with wire_to(QUICK | quick | interval) as wire:
        join(wire, "m")
        eventually(lambda: members(wire) == set(), "the member is gone")


@effect_of("group.consumer.heartbeat.interval.ms")
def test_members_are_told_how_often_to_heartbeat() -> None:
    # Shorter than what a converging group is asked for, so it shows at once.
    with wire_to(QUICK | {"group.consumer.heartbeat.interval.ms": "123"}) as wire:
        assert join(wire, "m").heartbeat_interval_ms == 123


@effect_of(
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)
@pytest.mark.parametrize("name", ["session.timeout.ms", "heartbeat.interval.ms"])
def test_the_timing_of_one_group_has_bounds(name: str) -> None:
    bounds = {
        "group.consumer.session.timeout.ms": "45000",
        "group.consumer.min.session.timeout.ms": "40000",
        "group.consumer.max.session.timeout.ms": "50000",
        "group.consumer.min.heartbeat.interval.ms": "4000",
        "group.consumer.max.heartbeat.interval.ms": "6000",
    }
    low = int(bounds[f"group.consumer.min.{name}"])
    high = int(bounds[f"group.consumer.max.{name}"])
    with wire_to(bounds) as wire:
        for value, words in (
            (low - 1, f"must be greater than or equal to group.consumer.min.{name}"),
            (high + 1, f"must be less than or equal to group.consumer.max.{name}"),
        ):
            refusal = alter(wire, "g", f"consumer.{name}", str(value))
            assert refusal == (ErrorCode.INVALID_CONFIG, f"consumer.{name} {words}")
        assert alter(wire, "g", f"consumer.{name}", str(low)) == (ErrorCode.NONE, None)
        assert alter(wire, "g", f"consumer.{name}", str(high)) == (ErrorCode.NONE, None)


def test_a_session_outside_its_own_bounds_keeps_the_broker_from_starting() -> None:
    with (
        pytest.raises(InvalidConfig, match="must lie between"),
        Broker(settings={"group.consumer.session.timeout.ms": "44999"}),
    ):
        pass


@effect_of("group.consumer.max.size")
def test_a_full_consumer_group_takes_no_more_members() -> None:
    with wire_to({"group.consumer.max.size": "1"}) as wire:
        assert join(wire, "m1").error_code == ErrorCode.NONE
        assert join(wire, "m2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@effect_of("group.consumer.assignors")
def test_only_assignors_that_are_configured_can_be_asked_for() -> None:
    with wire_to({"group.consumer.assignors": "range,roundrobin"}) as wire:
        assert join(wire, "m1", assignor="uniform").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        join(wire, "m1", assignor="roundrobin")
        join(wire, "m2", "other")
        for group, assignor in (("g", "roundrobin"), ("other", "range")):
            request = ConsumerGroupDescribeRequest(
                group_ids=[group], include_authorized_operations=False
            )
            (described,) = wire.ask(request, 1, ConsumerGroupDescribeResponse).groups
            assert described.assignor_name == assignor


@effect_of("group.consumer.migration.policy")
@pytest.mark.parametrize(
    ("policy", "code"),
    [("bidirectional", ErrorCode.NONE), ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_classic_group_is_upgraded_only_where_the_policy_allows(
    policy: str, code: ErrorCode
) -> None:
    with wire_to({"group.consumer.migration.policy": policy}) as wire:
        classic = wire.member("g", protocols={"range": subscription("t")})
        assert classic.join().error_code == ErrorCode.NONE
        assert join(wire, "m").error_code == code


def test_a_group_can_have_its_own_session_and_interval() -> None:
    slow = {"group.consumer.heartbeat.interval.ms": "150"}
    with wire_to(QUICK | slow) as wire:
        assert alter(wire, "g", "consumer.heartbeat.interval.ms", "20") == (0, None)
        assert alter(wire, "g", "consumer.session.timeout.ms", "100") == (0, None)
        assert join(wire, "m").heartbeat_interval_ms == 20
        assert join(wire, "m", "other").heartbeat_interval_ms == 150
        eventually(lambda: members(wire) == set(), "the member is gone")
        assert members(wire, "other") == {"m"}
