"""`headrace group` and `consume --group` against a real broker: what people see, exit codes."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Client, Consumer, ConsumerSettings, TopicPartition
from headrace.testing import Broker
from tests.integration.test_command_line import Run, run

__all__ = ["run"]

PATIENCE_SECONDS = 30


@pytest.fixture
def client(headrace_broker: Broker) -> Iterator[Client]:
    with Client(headrace_broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def topic(run: Run) -> str:
    """Two partitions of ten records each, the first five an hour old."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    run("topic", "create", name, "-p", "2")
    now_ms = time.time_ns() // 1_000_000
    lines = "\n".join(
        f'{{"value": "{number}", "partition": {partition}, "timestamp": {timestamp}}}'
        for number in range(10)
        for partition in range(2)
        for timestamp in [now_ms - 3_600_000 if number < 5 else now_ms]
    )
    assert run("produce", name, "-f", "json", stdin=lines).code == 0
    return name


@pytest.fixture
def group(client: Client, topic: str) -> str:
    """A group that has read everything, and has no members."""
    name = f"group-{topic}"
    client.admin.alter_offsets(name, {TopicPartition(topic, number): 10 for number in range(2)})
    return name


def committed(run: Run, group: str) -> list[int | None]:
    found = run("group", "describe", group, "-o", "json").json()
    return [each["committed"] for each in found["partitions"]]


def join(client: Client, group: str, topic: str) -> Consumer:
    consumer = client.consumer(ConsumerSettings(group, "consumer", auto_commit=False))
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(consumer.assignment) != 2:
        consumer.poll(50, max_records=0)
        assert time.monotonic() < deadline
    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_left_off(run: Run, topic: str, protocol: str) -> None:
    consume = ["consume", topic, "-g", f"g-{topic}", "--group-protocol", protocol]
    first = run(*consume, "-n", "7").out.splitlines()
    rest = run(*consume).out.splitlines()
    assert (len(first), len(rest)) == (7, 13)
    assert run(*consume).out == ""
    assert sorted(first + rest) == sorted(str(number) for number in range(10) for _ in range(2))


def test_a_group_may_begin_at_the_end(run: Run, topic: str) -> None:
    consume = ["consume", topic, "-g", f"g-{topic}", "--group-protocol", "consumer"]
    assert run(*consume, "--from", "end").out == ""


def test_what_a_group_cannot_do_is_wrong_usage(run: Run, topic: str) -> None:
    assert run("consume", topic, "-g", "g", "-p", "0").code == 2
    refused = run("consume", topic, "-g", "g", "--from", "7")
    assert (refused.code, "group reset" in refused.err) == (2, True)
    assert run("consume", topic, "-g", "g", "--group-protocol", "new").code == 2
    assert run("consume", "no-such-topic", "-g", "g").code == 1


def test_groups_are_listed_and_described(run: Run, client: Client, group: str, topic: str) -> None:
    listed = {row["group"]: row for row in run("group", "list", "-o", "json").json()}
    row = {"group": group, "state": "Empty", "type": "classic", "lag": 0, "deleted": 0}
    assert listed[group] == row
    assert group not in run("group", "list", "--type", "consumer").out
    assert group in run("group", "list", "--state", "Empty", "--type", "classic").out
    consumer = join(client, group, topic)
    run("produce", topic, "-p", "1", "more")
    found = run("group", "describe", group, "-o", "json").json()
    assert (found["state"], found["type"], found["lag"]) == ("Stable", "consumer", 1)
    [member] = found["members"]
    assert (member["member"], member["reads"]) == (consumer.member_id, {topic: [0, 1]})
    rows = [(each["committed"], each["end"], each["lag"]) for each in found["partitions"]]
    assert rows == [(10, 10, 0), (10, 11, 1)]
    shown = run("group", "describe", group).out
    assert f"{topic}:0,1" in shown
    assert "lag 1" in shown
    consumer.close()
    assert "no members" in run("group", "describe", group).out


def test_a_group_whose_commit_is_below_the_log_start_says_so(
    run: Run, client: Client, group: str, topic: str
) -> None:
    run("produce", topic, "-p", "1", *map(str, range(5)))
    client.admin.delete_records({TopicPartition(topic, 1): 13})
    told = "committed below the log start; 3 offsets deleted before it read them"
    assert f"{group}: {told}\n" in run("group", "list").out
    listed = {row["group"]: row for row in run("group", "list", "-o", "json").json()}
    assert (listed[group]["lag"], listed[group]["deleted"]) == (5, 3)
    assert f"{topic} 1: {told} (it starts at 13)\n" in run("group", "describe", group).out
    rows = run("group", "describe", group, "-o", "json").json()["partitions"]
    assert [(each["start"], each["deleted"]) for each in rows] == [(0, 0), (13, 3)]


def test_a_group_that_has_committed_nothing_has_no_lag_to_list(
    run: Run, client: Client, topic: str
) -> None:
    consumer = join(client, f"new-{topic}", topic)
    (row,) = (line for line in run("group", "list").out.splitlines() if f"new-{topic}" in line)
    assert row.split() == [f"new-{topic}", "Stable", "consumer", "-"]
    consumer.close()


def test_a_group_that_does_not_exist_is_an_error_in_plain_words(run: Run) -> None:
    refused = run("group", "describe", "nobody")
    assert (refused.code, refused.err) == (1, "headrace: group 'nobody' does not exist\n")
    assert run("group", "list", "--type", "odd").code == 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-offset", "4"], [4, 4]),
        (["--to-offset", "400"], [10, 10]),
        (["--by-duration", "30m"], [5, 5]),
        (["--by-duration", "P1D"], [0, 0]),
        (["--to-time", "@0"], [0, 0]),
        (["--to-time", "2100-01-01"], [10, 10]),
        (["--shift-by", "-3"], [7, 7]),
        (["--shift-by", "5"], [10, 10]),
        (["--shift-by", "-50"], [0, 0]),
    ],
)
def test_a_group_is_reset(run: Run, group: str, target: list[str], expected: list[int]) -> None:
    planned = run("group", "reset", group, "--all-topics", *target, "--dry-run", "-o", "json")
    assert [each["new offset"] for each in planned.json()["offsets"]] == expected
    assert committed(run, group) == [10, 10], "a dry run changes nothing"
    done = run("group", "reset", group, "--all-topics", *target, "--yes")
    assert done.code == 0
    assert done.out.endswith(f"moved 2 offsets of {group}\n")
    assert committed(run, group) == expected


def test_a_reset_may_be_for_some_partitions_only(run: Run, group: str, topic: str) -> None:
    assert run("group", "reset", group, "-t", f"{topic}:1", "--to-offset", "3", "-y").code == 0
    assert committed(run, group) == [10, 3]
    refused = run("group", "reset", group, "-t", f"{topic}:2", "--to-earliest", "-y")
    assert (refused.code, "partitions 0 to 1, not 2" in refused.err) == (2, True)
    assert run("group", "reset", group, "-t", f"{topic}:x", "--to-earliest", "-y").code == 2
    assert run("group", "reset", group, "-t", "no-such-topic", "--to-earliest", "-y").code == 1


def test_a_reset_may_come_from_a_file(run: Run, group: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,2\n{topic},1,6\n")
    assert run("group", "reset", group, "--from-file", str(path), "-y").code == 0
    assert committed(run, group) == [2, 6]
    missing = run("group", "reset", group, "--from-file", str(tmp_path / "none"), "-y")
    assert (missing.code, "No such file" in missing.err) == (1, True)


def test_a_reset_makes_a_group_that_does_not_exist_yet(run: Run, topic: str) -> None:
    assert run("group", "reset", f"new-{topic}", "-t", topic, "--to-offset", "8", "-y").code == 0
    consume = ["consume", topic, "-g", f"new-{topic}", "--group-protocol", "consumer"]
    assert len(run(*consume).out.splitlines()) == 4
    refused = run("group", "reset", f"newer-{topic}", "-t", topic, "--shift-by", "1", "-y")
    assert (refused.code, "nothing to shift" in refused.err) == (1, True)
    nothing = run("group", "reset", f"newer-{topic}", "--all-topics", "--to-earliest", "-y")
    assert (nothing.code, nothing.out) == (0, "nothing to move\n")


def test_a_reset_asks_first(run: Run, group: str) -> None:
    asked = run("group", "reset", group, "--all-topics", "--to-earliest", stdin="n\n")
    assert asked.code == 1
    assert "new offset" in asked.out
    assert f"Move 2 offsets of group {group}?" in asked.err
    assert committed(run, group) == [10, 10]
    assert run("group", "reset", group, "--all-topics", "--to-earliest", stdin="y\n").code == 0
    assert committed(run, group) == [0, 0]


def test_a_reset_is_refused_while_somebody_reads_and_says_who(
    run: Run, client: Client, group: str, topic: str
) -> None:
    consumer = join(client, group, topic)
    refused = run("group", "reset", group, "--all-topics", "--to-earliest", "-y")
    assert refused.code == 1
    assert f"has an active member: {consumer.member_id} (headrace at " in refused.err
    assert "stop them first" in refused.err
    planned = run("group", "reset", group, "--all-topics", "--to-earliest", "--dry-run")
    assert planned.code == 0
    assert "now this would be refused" in planned.err
    consumer.close()
    assert committed(run, group) == [10, 10]


def test_a_reset_must_be_told_what_and_where_to_once(run: Run, group: str) -> None:
    for words in (
        [],
        ["--all-topics"],
        ["--to-earliest"],
        ["--all-topics", "--to-earliest", "--to-latest"],
        ["--all-topics", "-t", "t", "--to-earliest"],
        ["--all-topics", "--by-duration", "soon"],
        ["--all-topics", "--to-time", "soon"],
    ):
        assert run("group", "reset", group, *words, "--yes").code == 2, words
    assert committed(run, group) == [10, 10]


def test_groups_are_deleted_unless_they_are_in_use(
    run: Run, client: Client, group: str, topic: str
) -> None:
    consumer = join(client, group, topic)
    refused = run("group", "delete", group, "nobody", "--yes")
    assert refused.code == 1
    assert f"not deleted: group '{group}' has members" in refused.err
    assert "not deleted: group 'nobody' does not exist" in refused.err
    consumer.close()
    assert run("group", "delete", group, stdin="n\n").code == 1
    assert run("group", "delete", group, "-y", "-o", "json").json() == {
        "deleted": [group],
        "failed": {},
    }
    assert run("group", "describe", group).code == 1
    where = TopicPartition(topic, 0)
    assert client.admin.committed_offsets(group, [where]) == {}


def test_a_lag_that_is_not_known_is_no_lag_of_nothing(run: Run, client: Client, topic: str) -> None:
    group = f"quiet-{topic}"
    with join(client, group, topic):
        assert run("group", "describe", group).out.splitlines()[-1].startswith("lag - ")
        assert run("group", "describe", group, "-o", "json").json()["lag"] is None
    client.admin.alter_offsets(group, {TopicPartition(topic, 0): 4})
    with join(client, group, topic):
        said = run("group", "describe", group).out.splitlines()[-1]
        assert said == "lag 6 (unknown for 1 of 2 partitions)"


def test_groups_are_listed_by_a_state_that_exists(run: Run, group: str) -> None:
    assert group in run("group", "list", "--state", "empty").out
    refused = run("group", "list", "--state", "Bogus")
    assert (refused.code, "PreparingRebalance" in refused.err) == (2, True)


def test_a_group_needs_a_name(run: Run, topic: str) -> None:
    assert run("group", "reset", "", "-t", topic, "--to-earliest", "-y").code == 2
    assert run("consume", topic, "-g", "").code == 2


def test_a_reset_that_creates_a_group_says_so(run: Run, topic: str) -> None:
    reset = ["group", "reset", f"new-{topic}", "-t", topic, "--to-offset", "8"]
    planned = run(*reset, "--dry-run")
    assert (planned.code, "does not exist yet: this would create it" in planned.err) == (0, True)
    asked = run(*reset, stdin="n\n")
    assert (asked.code, f"Create group new-{topic} with 2 offsets?" in asked.err) == (1, True)
    made = run(*reset, "-y", "-o", "json")
    assert made.json()["new_group"] is True
    again = run(*reset, "-y")
    assert (again.code, again.err) == (0, "")


def test_an_offset_that_the_partition_does_not_have_is_told(
    run: Run, group: str, topic: str
) -> None:
    said = run("group", "reset", group, "-t", f"{topic}:1", "--to-offset", "999", "-y")
    assert said.err == f"headrace: {topic}-1 has offsets 0 to 10, not 999: taking 10\n"
    assert said.out.endswith(f"moved 1 offset of {group}\n")
    shifted = run("group", "reset", group, "-t", f"{topic}:1", "--shift-by", "-11", "-y")
    assert "not -1: taking 0" in shifted.err
