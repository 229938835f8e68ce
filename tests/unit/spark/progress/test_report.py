"""The report: well-formed, self-contained, and true to the batches."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.progress import Progress
from headrace.spark.progress.axes import amount_ticks, time_ticks
from headrace.spark.progress.figures import axis_duration, duration, short, size
from headrace.spark.progress.report import render
from headrace.spark.progress.series import (
    BINS,
    POINTS_MAX,
    Line,
    lag,
    measured,
    nearby,
    restarts,
    span_of,
    throughput,
)
from tests.support.spark_progress import BEGIN, batch

SVG = "{http://www.w3.org/2000/svg}"


def area(line: Line) -> float:
    """Rows under a line of rates, by the rectangles of its bins."""
    total = 0.0
    for piece in line.pieces:
        width = piece[1][0] - piece[0][0]
        total += sum(rate for _, rate in piece) * width
    return total


def two_runs() -> list[Progress]:
    first = [batch(number) for number in range(20)]
    later = [batch(number, run="second", at=BEGIN + number + 30) for number in range(20, 40)]
    return first + later


def titles(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter(f"{SVG}text") if each.get("class") == "title"]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(10, 5000), st.integers(0, 5000)),
        min_size=3,
        max_size=60,
    )
)
def test_throughput_over_time_adds_up_to_the_rows(drawn: Sequence[tuple[int, int, int]]) -> None:
    at, batches = BEGIN, []
    for number, (rows, took_ms, idle_ms) in enumerate(drawn):
        at += (took_ms + idle_ms) / 1000
        batches.append(batch(number, at=at, rows=rows, batch_ms=took_ms))
    span = span_of(batches)
    [line] = throughput(batches, span)
    rows = sum(each.rows for each in batches)
    # Bins at both ends may be cut: no more is off than what the busiest of them holds.
    assert abs(area(line) - rows) <= 2.2 * line.top * span.bin_seconds + 1


def test_a_batch_once_a_second_is_a_level_line_not_a_comb() -> None:
    batches = [batch(number) for number in range(60)]
    [line] = throughput(batches, span_of(batches))
    rates = [rate for _, rate in line.pieces[0]][5:-5]
    assert rates == pytest.approx([100.0] * len(rates))


def test_a_burst_after_a_long_wait_is_a_burst() -> None:
    batches = [*(batch(number) for number in range(10)), batch(10, at=BEGIN + 1000, rows=5000)]
    [line] = throughput(batches, span_of(batches))
    at, top = max(line.pieces[0], key=lambda point: point[1])
    assert at > BEGIN + 990
    assert top > 500


def test_lines_are_broken_where_a_query_was_restarted() -> None:
    batches = two_runs()
    span = span_of(batches)
    for [line] in (throughput(batches, span), lag(batches, span)):
        first, second = line.pieces
        assert first[-1][0] <= BEGIN + 19
        assert second[0][0] >= BEGIN + 49.4
    assert restarts(batches) == [BEGIN + 49.5]


def test_a_pipeline_that_runs_once_an_hour_is_a_point_for_each_run() -> None:
    batches = [
        batch(hour, run=f"run {hour}", at=BEGIN + hour * 3600, watched_since=float(hour))
        for hour in range(200)
    ]
    [line] = throughput(batches, span_of(batches))
    assert [[rate for _, rate in piece] for piece in line.pieces] == [[200.0]] * 200
    svg = render(batches, ".svg", "clicks")
    assert ">restarted<" not in svg
    assert 'class="restart"' not in svg


def test_lag_that_nobody_saw_is_dotted() -> None:
    batches = [*two_runs(), batch(40, run="third", at=BEGIN + 100)]
    batches[20] = batch(20, run="second", at=BEGIN + 50, lag={}, lag_before={})
    svg = ElementTree.fromstring(render(batches, ".svg", "clicks"))
    dotted = [each for each in svg.iter(f"{SVG}line") if each.get("class") == "unseen"]
    assert len(dotted) == 2
    [line] = lag(batches, span_of(batches))
    assert line.unseen[:1] == [((BEGIN + 19, 10.0), (BEGIN + 50.5, 110.0))]
    assert throughput(batches, span_of(batches))[0].unseen == []


def test_queries_that_begin_again_together_are_one_restart() -> None:
    batches = [
        batch(number, query=query, run=f"{query} {process}", at=at, watched_since=process)
        for process, at in ((1.0, BEGIN), (2.0, BEGIN + 60), (3.0, BEGIN + 120))
        for number, query in enumerate(("counts", "raw"))
        if (process, query) != (3.0, "raw")  # which had nothing to do
    ]
    assert restarts(batches) == [BEGIN + 59.5, BEGIN + 119.5]
    assert "5 batches, 2 restarts<" in render(batches, ".html", "clicks")


def test_lag_rises_when_records_come_and_not_while_a_query_waits() -> None:
    quiet = [batch(number, lag={"clicks": 0}) for number in range(5)]
    batches = [*quiet, batch(5, at=BEGIN + 3600)]
    [line] = lag(batches, span_of(batches))
    assert line.pieces[0][-3:-1] == [(BEGIN + 3598.5, 0), (BEGIN + 3599.5, 110)]


def test_lag_has_what_waited_before_each_batch_and_after() -> None:
    batches = [batch(0), batch(1, lag={"clicks": 0}, lag_before={"clicks": 40})]
    [line] = lag(batches, span_of(batches))
    assert line.name == "clicks"
    assert line.pieces == [
        [(BEGIN - 0.5, 110), (BEGIN, 10), (BEGIN + 0.5, 40), (BEGIN + 1, 0)],
    ]


def test_lag_of_several_queries_is_named_by_query_and_topic() -> None:
    batches = [batch(0), batch(0, query="clicks-delta", lag={"a": 1, "b": 2})]
    names = [line.name for line in lag(batches, span_of(batches))]
    assert names == ["clicks-delta: a", "clicks-delta: b", "clicks-topic: clicks"]


def test_a_long_history_is_thinned_and_its_peaks_stay() -> None:
    batches = [batch(number) for number in range(5000)]
    batches[3210] = batch(3210, batch_ms=99_000)
    [line] = measured(batches, span_of(batches), lambda each: float(each.batch_ms))
    assert len(line.pieces[0]) <= BINS + 1 < POINTS_MAX
    assert line.top == 99_000
    assert nearby(line, BEGIN + 3200, BEGIN + 3220) == 99_000


def test_the_picture_has_a_panel_for_each_thing_that_is_known() -> None:
    plain = render([batch(0), batch(1)], ".svg", "clicks")
    assert titles(plain) == ["Throughput", "Lag", "Batch time"]
    assert titles(render([batch(0, lag={})], ".svg", "x")) == ["Throughput", "Batch time"]
    stateful = render([batch(0, state_rows=4), batch(1, state_rows=9)], ".svg", "x")
    assert titles(stateful) == ["Throughput", "Lag", "Batch time", "State"]


def test_the_picture_is_well_formed_whatever_names_are_given() -> None:
    odd = '<script>alert("&")</script>'
    batches = [batch(0, query=odd, lag={odd: 5}), batch(1, query=odd, lag={odd: 5})]
    ElementTree.fromstring(render(batches, ".svg", odd))
    page = render(batches, ".html", odd)
    assert "<script" not in page


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = render(two_runs(), ".html", "clicks")
    assert re.findall(r"<(script|link|img|iframe)\b|@import|url\(", page) == []
    addresses = set(re.findall(r"https?://[^\"' <]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_the_page_tells_figures_and_restarts() -> None:
    page = render(two_runs(), ".html", "clicks")
    assert "40 batches, 1 restart<" in page
    cells = re.findall(r"<td>(.*?)</td>", page)
    assert cells == [
        *("clicks-topic", "40", "4,000", "200", "500 ms", "500 ms", "10", "110", "-", "-", "-"),
    ]
    assert page.count(">restarted<") == 1


def test_a_watermark_of_another_day_is_told_with_its_day() -> None:
    far = render([batch(0, watermark=BEGIN - 86_400)], ".html", "clicks")
    assert "<td>2026-09-20 14:13:20</td>" in far
    assert "<td>14:12:50</td>" in render([batch(0, watermark=BEGIN - 30)], ".html", "clicks")


def test_a_live_page_loads_itself_again_and_a_finished_one_does_not() -> None:
    assert 'http-equiv="refresh"' in render(two_runs(), ".html", "clicks", is_live=True)
    assert 'http-equiv="refresh"' not in render(two_runs(), ".html", "clicks")


def test_without_a_batch_the_report_says_so() -> None:
    assert "No batch has ended yet." in render([], ".html", "clicks")
    ElementTree.fromstring(render([], ".svg", "clicks"))


@given(st.floats(1e-3, 1e12))
def test_amounts_have_few_round_ticks_that_hold_the_highest(top: float) -> None:
    ticks = amount_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-6)
    assert 2 <= len(ticks) <= 6


@given(st.floats(1e9, 4e9), st.floats(1, 1e9))
def test_times_have_few_ticks_within_the_span(begin: float, seconds: float) -> None:
    ticks = time_ticks(begin, begin + seconds)
    assert len(ticks) <= 10
    assert all(begin <= at <= begin + seconds for at, _ in ticks)


def test_times_are_written_as_finely_as_they_are_apart() -> None:
    assert [text for _, text in time_ticks(BEGIN, BEGIN + 60)][:2] == ["14:13:20", "14:13:30"]
    assert [text for _, text in time_ticks(BEGIN, BEGIN + 7200)][:2] == ["14:15", "14:30"]
    assert [text for _, text in time_ticks(BEGIN, BEGIN + 9e5)][:2] == ["22 Sep", "24 Sep"]
    over_night = [text for _, text in time_ticks(BEGIN, BEGIN + 1.5 * 86_400)]
    assert over_night[:4] == ["18:00", "22 Sep", "06:00", "12:00"]


def test_numbers_are_short_and_have_their_unit() -> None:
    assert [short(each) for each in (0, 2.5, 1500, 2e6)] == ["0", "2.5", "1.5 k", "2 M"]
    assert [duration(each) for each in (340, 2100, 200_000, 4e7)] == [
        *("340 ms", "2.1 s", "3 min 20 s", "11 h 6 min"),
    ]
    assert [axis_duration(each) for each in (0, 250, 1500, 1.2e6)] == [
        *("0", "250 ms", "1.5 s", "20 min"),
    ]
    assert [size(each) for each in (17, 5120, 3e9)] == ["17 B", "5.1 kB", "3.0 GB"]
