"""What `headrace pipeline` refuses by asking the broker, before it starts Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headrace.cli.main import main
from headrace.client import Client, TopicPartition
from headrace.spark import session
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.support.pipelines import Written
from tests.support.spark_readers import send

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


@pytest.mark.parametrize("read", ["topics", "pattern", "assign"])
def test_a_partition_that_its_broker_cannot_open_is_told_at_once(
    read: str, command: Command, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        broker.create_topic("halves", partitions=2)
        with Client(broker.bootstrap_servers) as client:
            send(client, "halves", [b"{}"], partition=1)
    shutil.rmtree(data / "halves-1")
    (data / "halves-1").write_text("no directory")
    chosen = {"topics": ["halves"], "pattern": "halv.*", "assign": {"halves": [0, 1]}}[read]
    with Broker(data_dir=data) as broker:
        written = Written(tmp_path, broker.bootstrap_servers, "halves").table()
        del written.source["topics"]
        written.source[read] = chosen
        for name in ("run", "backfill"):
            code, said = command(name, str(written.save()))
            assert (code, "halves-1 is offline: the broker cannot open" in said) == (1, True)
        del written.source[read]
        written.source["assign"] = {"halves": [0]}
        written.load().require_startable()  # who reads the other is not concerned


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


def everything_in(directory: Path) -> dict[str, bytes]:
    files = (each for each in directory.rglob("*") if each.is_file())
    return {str(each.relative_to(directory)): each.read_bytes() for each in files}


@pytest.mark.parametrize("kind", ["complete", "parquet", "parquet-file", "no-table"])
def test_what_was_there_before_a_pipeline_is_neither_replaced_nor_hidden(
    kind: str, command: Command, broker: Broker, topic: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    written = Written(tmp_path / "pipeline", broker.bootstrap_servers, topic)
    written.directory.mkdir()
    window = {"window": {"time": "at", "size": "1 minute", "agg": {"n": "count(*)"}}}
    if kind == "complete":
        write_deltalake(mine, pa.table({"precious": [1, 2, 3]}))
        written.sink(delta={"path": str(mine), "mode": "complete"}, steps=[window])
        expected = "has rows that no query has written, and mode complete would replace all"
    elif kind == "parquet":
        (mine / "day=1").mkdir(parents=True)
        pq.write_table(pa.table({"precious": [1]}), mine / "day=1" / "a.parquet")
        written.sink(parquet={"path": str(mine)})
        expected = f"{mine}/day=1/a.parquet is there, which this pipeline has not written"
    else:
        mine.write_text("precious")
        name = "parquet" if kind == "parquet-file" else "delta"
        written.sink(**{name: {"path": str(mine)}})
        expected = "which this pipeline has not" if name == "parquet" else "cannot be read"
    before = everything_in(tmp_path)
    code, said = command("run", str(written.save()), "--once")
    assert (code, expected in said) == (1, True)
    written.save().unlink()
    assert everything_in(tmp_path) == before


def test_a_checkpoint_that_was_cut_short_at_its_start_is_told(
    command: Command, written: Written
) -> None:
    """As a power cut may leave it; Spark tells of its parser alone."""
    checkpoint = written.directory / "checkpoint" / "table"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").touch()
    code, said = command("run", str(written.save()))
    assert (code, f"{checkpoint}/metadata is damaged" in said) == (1, True)
