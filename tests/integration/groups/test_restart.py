"""The broker stops or dies and comes back: groups, generations and offsets are as before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tests.integration.conftest import BrokerMaker
from tests.integration.groups.conftest import QUICK_GROUPS
from tests.support.brokers import BrokerProcess
from tests.support.group_members import (
    STYLES,
    Member,
    members_closed,
    poll_until,
    until_shared,
)
from tests.support.group_wire import NOT_YET, GroupWire, until
from tests.support.groups import required
from tests.support.kafka_tools import DUMP_LOG, KafkaTools
from tests.support.records import fill
from tests.support.topics import Topics

pytestmark = pytest.mark.xdist_group("group-restarts")
# A broker of these tests is away for seconds when it is Kafka; nobody's session may end meanwhile.
_SETTINGS = {**QUICK_GROUPS, "group.consumer.session.timeout.ms": "45000"}
_RECONNECT = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200}
# Offsets, classic groups; then of the new protocol: group epoch, member, target of the group,
# target of a member, what a member has, and what a regular expression found.
_RECORD_KINDS = {
    ("1", "4"),
    ("2", "3"),
    *((kind, "0") for kind in ("3", "5", "6", "7", "8", "16")),
}
_COMPLAINTS = ("isvalid: false", "invalid bytes at the end", "Exception", "Could not", "skipping")


@pytest.fixture
def own_broker(make_broker: BrokerMaker) -> Iterator[BrokerProcess]:
    made = make_broker(_SETTINGS)
    made.start()
    yield made
    made.stop()


def _restart(broker: BrokerProcess, how: str) -> None:
    if how == "SIGKILL":
        broker.kill()
    else:
        broker.stop()
    broker.start()


def _consumer_epochs(broker: BrokerProcess, group: str) -> tuple[int, dict[str, int]]:
    """The epoch of a new group and those of its members."""
    wire = GroupWire(broker.port)
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)

    def loaded() -> tuple[int, dict[str, int]] | None:
        (found,) = wire.ask(request, 1, ConsumerGroupDescribeResponse).groups
        if found.error_code in NOT_YET:
            return None
        assert found.error_code == 0
        return found.group_epoch, {each.member_id: each.member_epoch for each in found.members}

    epochs = until(loaded, f"epochs of {group}")
    wire.close()
    return epochs


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_members_of_every_kind_go_on_without_a_rebalance(
    own_broker: BrokerProcess, how: str
) -> None:
    servers = own_broker.bootstrap_servers
    topic = Topics(servers).create("restarts", 4)
    with members_closed() as make:
        teams: dict[str, list[Member]] = {}
        for style in STYLES:
            session: dict[str, object] = {"enable_auto_commit": False}
            if style != "broker":
                session["session_timeout_ms"] = 45_000
            teams[style] = [
                make(servers, f"{style}-team", [topic], style, **session, **_RECONNECT)
                for _ in range(2)
            ]
            until_shared(4, *teams[style])
        fill(servers, topic, 4, 10)
        for team in teams.values():
            poll_until(lambda team=team: _read(team) == 40, "all records", *team)  # type: ignore[misc]  # bound now
            for each in team:
                each.consumer.commit(asynchronous=False)
        before = {style: [set(each.owned) for each in team] for style, team in teams.items()}
        told = {style: [len(each.revoked) for each in team] for style, team in teams.items()}
        epochs = _consumer_epochs(own_broker, "broker-team")
        _restart(own_broker, how)
        assert _consumer_epochs(own_broker, "broker-team") == epochs
        fill(servers, topic, 4, 5, first=10)
        for style, team in teams.items():
            poll_until(lambda team=team: _read(team) >= 60, "new records", *team)  # type: ignore[misc]  # bound now
            assert _read(team) == 60
            assert [set(each.owned) for each in team] == before[style]
            assert [len(each.revoked) for each in team] == told[style]
            assert [each.lost for each in team] == [[], []]
            for each in team:
                done = each.consumer.commit(asynchronous=False)
                assert done is not None
                assert {part.offset for part in done} == {15}


def _read(team: list[Member]) -> int:
    return sum(len(each.read) for each in team)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_generations_assignments_and_offsets_come_back(own_broker: BrokerProcess, how: str) -> None:
    topic = Topics(own_broker.bootstrap_servers).create("comes-back", 1)
    wire = GroupWire(own_broker.port)
    member = wire.member("kept", session_timeout_ms=60_000)
    static = wire.member("kept", session_timeout_ms=60_000, instance_id="one")
    empty = wire.member("empty")
    member.join()
    static.begin_join()
    until(lambda: member.heartbeat() == 27 or None, "a rebalance")
    member.begin_join()
    member.end_join()
    static.end_join()
    member.sync({member.member_id: b"first", static.member_id: b"second"})
    assert static.sync().assignment == b"second"
    assert member.commit(topic, 7) == 0
    assert empty.commit(topic, 9) == 0
    wire.close()
    _restart(own_broker, how)
    wire = GroupWire(own_broker.port)
    wire.find("kept", "empty")
    for each in (member, static):
        each.connection = wire.connect()
        assert each.heartbeat() == 0
    assert member.sync().assignment == b"first"
    assert static.sync().assignment == b"second"
    assert wire.committed("kept", topic) == 7
    assert wire.committed("empty", topic) == 9
    described = wire.ask(
        DescribeGroupsRequest(groups=["kept", "empty"]), 6, DescribeGroupsResponse
    ).groups
    assert {each.group_id: each.group_state for each in described} == {
        "kept": "Stable",
        "empty": "Empty",
    }
    generation = member.generation
    assert member.leave().members[0].error_code == 0
    static.begin_join()
    static.end_join()
    assert static.generation == generation + 1
    wire.close()


def test_kafkas_dump_tool_reads_what_groups_wrote_before_and_after_a_kill(
    own_broker: BrokerProcess,
) -> None:
    tools = required(KafkaTools)
    servers = own_broker.bootstrap_servers
    topic = Topics(servers).create("dumped", 2)
    fill(servers, topic, 2, 5)
    with members_closed() as make:
        for style in STYLES:
            settings = {"group_instance_id": f"{style}-instance"}
            one = make(servers, f"dump-{style}", [topic], style, **settings)
            pattern = make(servers, f"dump-{style}", ["^dumped.*"], style)
            until_shared(2, one, pattern)
            one.consumer.commit(
                offsets=[TopicPartition(topic, 0, 3, f"said by {style}")], asynchronous=False
            )
            if style == "eager":
                _restart(own_broker, "SIGKILL")
    own_broker.kill()
    logs = sorted(own_broker.data_dir.glob("__consumer_offsets-*/*.log"))
    (result,) = tools.run_batch(
        [[DUMP_LOG, "--offsets-decoder", "--deep-iteration", "--files", _joined(logs)]]
    )
    text = result.checked()
    for complaint in _COMPLAINTS:
        assert complaint not in text + result.error, text[text.find(complaint) - 300 :][:600]
    assert len(re.findall(r"^Dumping ", text, flags=re.MULTILINE)) == len(logs)
    for style in STYLES:
        assert f'"group":"dump-{style}","topic":"{topic}","partition":0' in text
        assert f"said by {style}" in text
    assert '"classicMemberMetadata":null' in text
    kinds = re.findall(r'key: \{"type":"(\d+)".*? payload: \{"version":"(\d+)"', text)
    assert set(kinds) == _RECORD_KINDS


def _joined(paths: list[Path]) -> str:
    return ",".join(str(path) for path in paths)
