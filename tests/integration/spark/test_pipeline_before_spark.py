"""What `headrace pipeline` refuses by asking the broker, before it starts Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.client import Client, TopicPartition
from headrace.spark import session
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.support.pipelines import Written

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    return Written(tmp_path, broker.bootstrap_servers, topic).table()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command where Spark must not be needed: exit code, stderr."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", refused)

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", *arguments])
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def line_of(path: Path, begins: str) -> int:
    lines = path.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip(" -").startswith(begins))


@pytest.mark.parametrize("name", ["run", "backfill"])
def test_topics_that_do_not_exist_are_told_by_line_and_not_made(
    name: str, command: Command, written: Written, client: Client, topic: str
) -> None:
    written.source["topics"] = [topic, "no-such-source"]
    written.document["on_bad_record"] = {"dead_letter": "no-such-letters"}
    path = written.sink(topic={"name": "no-such-sink"}).save()
    code, said = command(name, str(path))
    assert code == 1
    for begins, missing in (
        ("topics:", "no-such-source"),
        ("on_bad_record:", "no-such-letters"),
        ("topic:", "no-such-sink"),
    ):
        assert f"{path}:{line_of(path, begins)}:" in said
        assert f"the topic {missing} does not exist: `headrace topic create {missing}`" in said
    assert not {each.name for each in client.admin.list_topics()} & {
        "no-such-source",
        "no-such-letters",
        "no-such-sink",
    }


def test_a_backfill_looks_only_at_the_sinks_that_it_fills(written: Written) -> None:
    written.sink(topic={"name": "no-such-sink"}).load().require_fillable(sinks=["table"])


def test_words_of_a_backfill_that_mean_nothing_are_all_told(
    command: Command, written: Written
) -> None:
    path = str(written.save())
    code, said = command("backfill", path, "--sink", "tabel", "--from", "yesterday")
    assert code == 1
    assert "there is no sink 'tabel': there are table" in said
    assert "'yesterday' is not earliest, latest or a time" in said


@pytest.mark.parametrize("kind", ["times", "offsets"])
def test_a_range_that_ends_before_it_begins_is_refused(
    kind: str, command: Command, written: Written, topic: str
) -> None:
    low, high = f'{{"{topic}":{{"0":1}}}}', f'{{"{topic}":{{"0":5}}}}'
    arguments = {
        "times": ["--from", "2026-02-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z"],
        "offsets": ["--from-offsets", high, "--to-offsets", low],
    }[kind]
    code, said = command("backfill", str(written.save()), *arguments)
    assert (code, "the range ends before it begins" in said) == (1, True)


def test_a_check_ends_with_3_where_no_broker_answers(command: Command, written: Written) -> None:
    code, said = command("check", str(written.save()), "-b", "127.0.0.1:1")
    assert (code, "127.0.0.1:1" in said) == (3, True)


def test_a_lost_checkpoint_is_told_with_all_offsets_to_go_on_from(
    command: Command, written: Written, client: Client, make_topic: TopicMaker
) -> None:
    topic, group = make_topic(partitions=3), "a-group-with-a-past"
    written.source.update(topics=[topic], commit_group=group)
    client.admin.alter_offsets(group, {TopicPartition(topic, 0): 5, TopicPartition(topic, 2): 7})
    code, said = command("run", str(written.save()))
    assert code == 1
    assert f"`from: {{offsets: {{{topic}: {{0: 5, 1: 0, 2: 7}}}}}}`" in said
