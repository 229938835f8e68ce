"""Kafka's own `kafka-consumer-groups` and `kafka-groups` against a broker process, in one JVM."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.brokers import BrokerProcess
from tests.support.group_members import Member, members_closed, poll_until, until_shared
from tests.support.groups import required
from tests.support.kafka_tools import KafkaTools, ToolResult
from tests.support.topics import Topics

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_GROUPS_TOOL = "org.apache.kafka.tools.GroupsCommand"
_HOUR_MS = 3_600_000
RECORDS = 20

pytestmark = pytest.mark.xdist_group("kafka-groups-tool")


class Run:
    """What each command said, and the names in it."""

    def __init__(self, topic: str, results: dict[str, ToolResult], first_ms: int) -> None:
        self.topic = topic
        self.first_ms = first_ms
        self.results = results

    def output(self, name: str) -> str:
        return self.results[name].checked()

    def rows(self, name: str) -> list[dict[str, str]]:
        """A table as the tool prints it; the first line names the columns."""
        lines = [line for line in self.output(name).splitlines() if line.strip()]
        columns = next(line for line in lines if line.startswith("GROUP")).split()
        at = next(index for index, line in enumerate(lines) if line.startswith("GROUP"))
        return [dict(zip(columns, line.split(), strict=False)) for line in lines[at + 1 :]]

    def offsets(self, name: str) -> dict[int, str]:
        """Partition to new offset, of a reset."""
        return {int(row["PARTITION"]): row["NEW-OFFSET"] for row in self.rows(name)}


@contextmanager
def _polled(*members: Member) -> Iterator[None]:
    """Members that go on working while the tool asks about them."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.is_set():
            for each in members:
                each.poll()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _write(servers: str, topic: str, first_ms: int) -> None:
    """Two partitions with a record for each minute of the last hours."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        for partition in (0, 1):
            producer.produce(topic, b"x", partition=partition, timestamp=first_ms + number * 60_000)
    assert producer.flush(30) == 0


def _commit(servers: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    placed = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
    consumer.commit(offsets=placed, asynchronous=False)
    consumer.close()


def _read(team: list[Member]) -> int:
    return sum(len(each.read) for each in team)


@pytest.fixture(scope="module")
def run(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Everything is asked once, in this order; the tests look at the answers."""
    tools = required(KafkaTools)
    servers = broker.bootstrap_servers
    topic = Topics(servers).create(f"tool-{uuid.uuid4().hex[:8]}", 2)
    first_ms = time.time_ns() // 1_000_000 - _HOUR_MS
    _write(servers, topic, first_ms)
    names = {name: f"{topic}-{name}" for name in ("idle", "busy", "new")}
    _commit(servers, names["idle"], topic, {0: 5, 1: 7})
    server = ("--bootstrap-server", servers)
    at = datetime.fromtimestamp((first_ms + 10 * 60_000 - 1) / 1000, UTC)
    file = tmp_path_factory.mktemp("tool") / "offsets.csv"
    file.write_text(f"{topic},0,3\n{topic},1,4\n")

    def tool(group: str, *words: str) -> list[str]:
        return [_TOOL, *server, "--group", names[group], *words]

    def reset(*words: str, group: str = "idle", how: str = "--dry-run") -> list[str]:
        return tool(group, "--reset-offsets", "--topic", topic, *words, how)

    commands = {
        "list": [_TOOL, *server, "--list"],
        "list states": [_TOOL, *server, "--list", "--state"],
        "list stable consumers": [
            _TOOL, *server, "--list", "--state", "stable", "--type", "consumer",
        ],
        "groups": [_GROUPS_TOOL, *server, "--list"],
        "describe idle": tool("idle", "--describe"),
        "describe busy": tool("busy", "--describe"),
        "describe new": tool("new", "--describe"),
        "members busy": tool("busy", "--describe", "--members", "--verbose"),
        "members new": tool("new", "--describe", "--members", "--verbose"),
        "state idle": tool("idle", "--describe", "--state"),
        "state busy": tool("busy", "--describe", "--state", "--verbose"),
        "state new": tool("new", "--describe", "--state", "--verbose"),
        "describe all": [_TOOL, *server, "--describe", "--all-groups", "--state"],
        "describe unknown": [_TOOL, *server, "--describe", "--group", f"{topic}-unknown"],
        "reset busy": reset("--to-earliest", group="busy", how="--execute"),
        "reset new": reset("--to-earliest", group="new", how="--execute"),
        "delete busy": tool("busy", "--delete"),
        "delete new": tool("new", "--delete"),
        "delete offsets busy": tool("busy", "--delete-offsets", "--topic", topic),
        "to earliest": reset("--to-earliest"),
        "to latest": reset("--to-latest"),
        "to current": reset("--to-current"),
        "to offset": reset("--to-offset", "9"),
        "to offset past the end": reset("--to-offset", "9999"),
        "shift forward": reset("--shift-by", "3"),
        "shift back too far": reset("--shift-by", "-6"),
        "to datetime": reset("--to-datetime", at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"),
        "by duration": reset("--by-duration", "PT50M30S"),
        "from file": tool("idle", "--reset-offsets", "--from-file", str(file), "--dry-run"),
        "export": tool(
            "idle", "--reset-offsets", "--all-topics", "--to-offset", "11", "--export", "--dry-run"
        ),
        "one partition": tool(
            "idle", "--reset-offsets", "--topic", f"{topic}:1", "--to-earliest", "--execute"
        ),
        "after one partition": tool("idle", "--describe"),
        "execute": reset("--to-offset", "12", how="--execute"),
        "after execute": tool("idle", "--describe"),
        "delete offsets": tool("idle", "--delete-offsets", "--topic", f"{topic}:0"),
        "after delete offsets": tool("idle", "--describe"),
        "delete": tool("idle", "--delete"),
        "list after": [_TOOL, *server, "--list"],
        "delete again": tool("idle", "--delete"),
    }  # fmt: skip
    with members_closed() as member:
        busy = [
            member(servers, names["busy"], [topic], "cooperative", client_id=f"busy-{number}")
            for number in range(2)
        ]
        until_shared(2, *busy)
        new = member(servers, names["new"], [topic], "broker", client_id="new-0")
        until_shared(2, new)
        for team in (busy, [new]):
            poll_until(lambda team=team: _read(team) >= 2 * RECORDS, "all records", *team)  # type: ignore[misc]  # bound now
            for each in team:
                ends = [TopicPartition(*place, RECORDS) for place in each.owned]
                each.consumer.commit(offsets=ends, asynchronous=False)
        with _polled(*busy, new):
            results = tools.run_batch(list(commands.values()))
    return Run(topic, dict(zip(commands, results, strict=True)), first_ms)


def test_groups_are_listed_with_states_and_types(run: Run) -> None:
    idle, busy, new = (f"{run.topic}-{name}" for name in ("idle", "busy", "new"))
    assert {idle, busy, new} <= set(run.output("list").split())
    states = {row["GROUP"]: row["STATE"] for row in run.rows("list states")}
    assert (states[idle], states[busy], states[new]) == ("Empty", "Stable", "Stable")
    filtered = run.output("list stable consumers")
    assert new in filtered
    assert busy not in filtered
    assert idle not in filtered
    kinds = {words[0]: words[1:] for words in map(str.split, run.output("groups").splitlines())}
    assert kinds[busy] == ["Classic", "consumer"]
    assert kinds[new] == ["Consumer", "consumer"]


def test_offsets_and_lag_are_described(run: Run) -> None:
    result = run.results["describe idle"]
    assert "has no active members" in result.output + result.error
    idle = {row["PARTITION"]: row for row in run.rows("describe idle")}
    assert [(idle[key]["CURRENT-OFFSET"], idle[key]["LAG"]) for key in "01"] == [
        ("5", "15"),
        ("7", "13"),
    ]
    assert idle["0"]["LOG-END-OFFSET"] == "20"
    for name in ("busy", "new"):
        rows = run.rows(f"describe {name}")
        assert [row["LAG"] for row in rows] == ["0", "0"]
        assert all(row["CLIENT-ID"].startswith(f"{name}-") for row in rows)
        assert {row["HOST"] for row in rows} == {"/127.0.0.1"}


def test_members_are_described(run: Run) -> None:
    busy = run.rows("members busy")
    assert [row["CLIENT-ID"] for row in busy] in (["busy-0", "busy-1"], ["busy-1", "busy-0"])
    assert [row["#PARTITIONS"] for row in busy] == ["1", "1"]
    assert f"{run.topic}:0" in run.output("members busy")
    (new,) = run.rows("members new")
    assert (new["CLIENT-ID"], new["#PARTITIONS"]) == ("new-0", "2")
    assert f"{run.topic}:0,1" in run.output("members new")


def test_states_are_described(run: Run) -> None:
    assert "Empty" in run.output("state idle")
    busy = run.output("state busy")
    assert "Stable" in busy
    assert "cooperative-sticky" in busy
    new = run.output("state new")
    assert "Stable" in new
    assert "uniform" in new
    everything = run.output("describe all")
    assert all(f"{run.topic}-{name}" in everything for name in ("idle", "busy", "new"))


def test_an_unknown_group_does_not_exist(run: Run) -> None:
    result = run.results["describe unknown"]
    assert f"Group {run.topic}-unknown not found." in result.output


@pytest.mark.parametrize("name", ["busy", "new"])
def test_groups_with_members_are_neither_reset_nor_deleted(run: Run, name: str) -> None:
    assert "Assignments can only be reset if the group" in run.output(f"reset {name}")
    assert "GroupNotEmptyException" in run.output(f"delete {name}")


def test_offsets_of_a_subscribed_topic_are_not_deleted(run: Run) -> None:
    result = run.results["delete offsets busy"]
    assert "GroupSubscribedToTopicException" in result.output


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("to earliest", {0: "0", 1: "0"}),
        ("to latest", {0: "20", 1: "20"}),
        ("to current", {0: "5", 1: "7"}),
        ("to offset", {0: "9", 1: "9"}),
        ("to offset past the end", {0: "20", 1: "20"}),
        ("shift forward", {0: "8", 1: "10"}),
        ("shift back too far", {0: "0", 1: "1"}),
        ("to datetime", {0: "10", 1: "10"}),
        ("by duration", {0: "10", 1: "10"}),
        ("from file", {0: "3", 1: "4"}),
    ],
)
def test_a_reset_finds_the_offsets(run: Run, how: str, expected: dict[int, str]) -> None:
    assert run.offsets(how) == expected


def test_a_reset_plan_is_exported(run: Run) -> None:
    lines = run.output("export").splitlines()
    assert any(f'"{run.topic}",0,11' in line or f"{run.topic},0,11" in line for line in lines)


def _current(run: Run, name: str) -> dict[str, str]:
    return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in run.rows(name)}


def test_a_reset_is_executed_for_one_partition_or_for_all(run: Run) -> None:
    run.output("one partition")
    assert _current(run, "after one partition") == {"0": "5", "1": "0"}
    run.output("execute")
    assert _current(run, "after execute") == {"0": "12", "1": "12"}


def test_offsets_and_groups_are_deleted(run: Run) -> None:
    run.output("delete offsets")
    assert _current(run, "after delete offsets").get("1") == "12"
    assert _current(run, "after delete offsets").get("0", "-") == "-"
    deleted = run.output("delete")
    assert "was successful" in deleted
    assert f"{run.topic}-idle" not in run.output("list after").split()
    assert "GroupIdNotFoundException" in run.output("delete again")
