"""Who hears of a batch, when the report is written, and what is waited for in the end."""

import io
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.core.errors import InvalidConfig
from headrace.spark.progress import Watching, watch
from tests.support.spark_progress import told

ID = told()["id"]
RUN = told()["runId"]


@dataclass
class Query:
    id: str = ID


@dataclass
class Streams:
    """The part of a session that listeners are added to; events are made by hand."""

    active: list[Query] = field(default_factory=list)
    listeners: list[StreamingQueryListener] = field(default_factory=list)

    def addListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802
        self.listeners.append(listener)

    def removeListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802
        self.listeners.remove(listener)

    def start(self, name: str = "clicks-topic") -> None:
        event = QueryStartedEvent.fromJson(
            {"id": ID, "runId": RUN, "name": name, "timestamp": "2026-09-21T14:13:20.000Z"}
        )
        for each in self.listeners:
            each.onQueryStarted(event)

    def progress(self, **changes: Any) -> None:
        event = QueryProgressEvent.fromJson({"progress": told(**changes)})
        for each in self.listeners:
            each.onQueryProgress(event)

    def end(self, error: str | None = None) -> None:
        event = QueryTerminatedEvent.fromJson(
            {"id": ID, "runId": RUN, "exception": error, "errorClassOnException": None}
        )
        for each in self.listeners:
            each.onQueryTerminated(event)


@dataclass
class Session:
    streams: Streams = field(default_factory=Streams)


@pytest.fixture
def streams() -> Streams:
    return Streams()


def watched(streams: Streams, **options: Any) -> Watching:
    return watch(cast("SparkSession", Session(streams)), **{"terminal": False, **options})


def test_batches_of_all_queries_are_heard(streams: Streams) -> None:
    with watched(streams) as watching:
        streams.start()
        streams.progress(batchId=0)
        streams.progress(batchId=1, name="other")
        streams.end()
    assert [(each.query, each.batch) for each in watching.history] == [
        ("clicks-topic", 0),
        ("other", 1),
    ]
    assert streams.listeners == []


def test_queries_of_other_names_are_left_alone(streams: Streams) -> None:
    with watched(streams, names={"clicks-topic"}) as watching:
        streams.start("other")
        streams.progress(name="other")
        streams.progress(batchId=5)
        streams.end()
    assert [each.batch for each in watching.history] == [5]


def test_what_cannot_be_understood_does_not_stop_the_query(streams: Streams) -> None:
    with watched(streams) as watching:
        streams.progress(timestamp="yesterday")
        streams.progress(batchId=6)
        streams.end()
    assert [each.batch for each in watching.history] == [6]


def test_a_history_that_cannot_be_written_does_not_stop_the_query(
    streams: Streams, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(streams, report=tmp_path / "clicks.html") as watching:
        (tmp_path / "clicks.report.jsonl").unlink()
        (tmp_path / "clicks.report.jsonl").mkdir()
        streams.progress(batchId=6)
        streams.end()
    assert [each.batch for each in watching.history] == [6]
    assert "history was not written" in caplog.text


def test_the_last_batch_is_waited_for_when_a_query_has_ended(streams: Streams) -> None:
    watching = watched(streams)
    streams.start()  # and it has ended: the session no longer has it

    def late() -> None:
        streams.progress(batchId=9)
        streams.end()

    timer = threading.Timer(0.2, late)
    timer.start()
    watching.close()
    timer.join()
    assert [each.batch for each in watching.history] == [9]


def test_a_query_that_goes_on_is_not_waited_for(streams: Streams) -> None:
    streams.active.append(Query())
    watching = watched(streams)
    streams.start()
    closing = threading.Thread(target=watching.close)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()


def test_closing_twice_and_after_the_session_is_no_trouble(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: StreamingQueryListener) -> None:
        raise ConnectionError("the session is gone")

    watching = watched(streams)
    monkeypatch.setattr(streams, "removeListener", gone)
    watching.close()
    watching.close()


def test_the_report_is_live_while_queries_run_and_whole_at_the_end(
    streams: Streams, tmp_path: Path
) -> None:
    report = tmp_path / "reports" / "clicks.html"
    watching = watched(streams, report=report, title="Clicks of today")
    streams.progress(batchId=0)
    first = report.read_text()
    assert "<title>Clicks of today</title>" in first
    assert 'http-equiv="refresh"' in first
    streams.progress(batchId=1)
    assert report.read_text() == first  # not for every batch
    streams.end()
    watching.close()
    last = report.read_text()
    assert "2 batches" in last
    assert 'http-equiv="refresh"' not in last
    assert {each.name for each in report.parent.iterdir()} == {"clicks.html", "clicks.report.jsonl"}


def test_a_report_continues_that_of_the_run_before(streams: Streams, tmp_path: Path) -> None:
    report = tmp_path / "clicks.svg"
    with watched(streams, report=report):
        streams.progress(batchId=0)
        streams.end()
    with watched(streams, report=report) as second:
        streams.progress(batchId=1, runId="cccccccc-0000-0000-0000-000000000001")
        streams.end()
    assert [each.batch for each in second.history] == [0, 1]
    first_since, second_since = (each.watched_since for each in second.history)
    assert 0 < first_since < second_since
    assert ">restarted<" in report.read_text()


def test_the_report_is_written_again_after_a_while(streams: Streams, tmp_path: Path) -> None:
    ticking = [0.0]
    watching = Watching(report=tmp_path / "a.html", clock=lambda: ticking[0])
    watching.open(cast("SparkSession", Session(streams)), metrics=None, terminal=False)
    streams.progress(batchId=0)
    streams.progress(batchId=1)
    ticking[0] = 3
    streams.progress(batchId=2)
    assert "3 batches" in (tmp_path / "a.html").read_text()
    streams.end()
    watching.close()


def test_a_report_of_another_kind_is_refused(streams: Streams, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"a.png must end in .html or .svg"):
        watched(streams, report=tmp_path / "a.png")


def test_a_report_that_cannot_be_written_is_refused(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfig, match="report: cannot write beside"):
        watched(streams, report=tmp_path / "file" / "a.html")
    (tmp_path / "b.html").mkdir()
    with pytest.raises(InvalidConfig, match=r"b.html is a directory"):
        watched(streams, report=tmp_path / "b.html")


def test_what_was_refused_leaves_the_report_of_others_alone(
    streams: Streams, tmp_path: Path
) -> None:
    report = tmp_path / "a.html"
    with pytest.raises(InvalidConfig, match="metrics"):
        watched(streams, report=report, metrics="nonsense")
    assert not report.exists()


def test_a_screen_that_is_gone_stops_no_query(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(f"nobody reads {text!r}")

    monkeypatch.setattr(sys, "stderr", Closed())
    with watched(streams, terminal=True) as watching:
        streams.start()
        streams.progress(batchId=7)
        streams.end()
    assert [each.batch for each in watching.history] == [7]
    assert "progress was not shown" in caplog.text


def test_an_address_that_is_taken_leaves_nothing_behind(streams: Streams) -> None:
    with watched(streams, metrics="127.0.0.1:0") as first:
        with pytest.raises(InvalidConfig, match="cannot listen"):
            watched(streams, metrics=first.metrics_address)
        assert len(streams.listeners) == 1


def test_lines_of_batches_go_to_stderr(
    streams: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    with watched(streams, terminal=True):
        streams.progress()
        streams.end("Boom: it broke\n\tat somewhere")
    said = capsys.readouterr()
    assert said.out == ""
    batch, end = said.err.splitlines()
    assert "clicks-topic: batch 3; 1,000 rows in 500 ms; 2,000 rows/s; lag clicks 350" in batch
    assert end == "clicks-topic: failed: Boom: it broke"
