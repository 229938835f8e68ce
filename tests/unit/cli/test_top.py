"""Rates out of two looks, figures out of metrics, and how they are shown."""

from dataclasses import replace

import pytest
import typer
from rich.console import Console

from headrace.cli.output import size
from headrace.cli.top.rates import (
    ClusterSample,
    GroupSample,
    MetricsSample,
    TopicSample,
    TopView,
    compare,
)
from headrace.cli.top.scraper import parse_metrics, url_for
from headrace.cli.top.screen import rate, render


def metered(
    at: float, topics: dict[str, tuple[int, int, int, int]], requests: int
) -> MetricsSample:
    names = ("messages_in", "bytes_in", "messages_out", "bytes_out")
    totals = {name: dict(zip(names, values, strict=True)) for name, values in topics.items()}
    return MetricsSample(at, totals, requests, 0, 3)


BEFORE = ClusterSample(
    at=10.0,
    time="then",
    cluster_id="c",
    brokers=1,
    topics={"orders": TopicSample(2, 100, 500, 10_000), "quiet": TopicSample(1, 7, 7, 70)},
    groups={"g": GroupSample("Stable", 50)},
    metrics=None,
)
NOW = replace(
    BEFORE,
    at=12.0,
    time="now",
    topics={
        "quiet": TopicSample(1, 7, 7, 70),
        "orders": TopicSample(2, 300, 700, 30_000),
        "new": TopicSample(1, 10, 10, 1_000),
    },
    groups={"g": GroupSample("Stable", 30), "fresh": GroupSample("Empty", None)},
)


def test_rates_come_from_the_ends_of_logs_alone() -> None:
    picture = compare(BEFORE, NOW)
    assert [(row.topic, row.messages_in) for row in picture.topics] == [
        ("orders", 100),
        ("new", 5),
        ("quiet", 0),
    ]
    assert picture.messages_in == 105
    assert [row.bytes_in for row in picture.topics] == [10_000, None, 0]
    assert (picture.messages_out, picture.requests, picture.connections) == (None, None, None)
    assert [(row.group, row.lag, row.lag_change) for row in picture.groups] == [
        ("g", 30, -10),
        ("fresh", None, None),
    ]


def test_metrics_add_what_goes_out_by_their_own_clock() -> None:
    before = replace(BEFORE, metrics=metered(10.5, {"orders": (0, 0, 0, 0)}, 100))
    now = replace(NOW, metrics=metered(14.5, {"orders": (9, 400, 40, 4_000)}, 500))
    picture = compare(before, now)
    orders = picture.topics[0]
    assert (orders.messages_in, orders.bytes_in) == (100, 100)
    assert (orders.messages_out, orders.bytes_out) == (10, 1_000)
    assert (picture.requests, picture.errors, picture.connections) == (100, 0, 3)


def test_a_topic_made_anew_has_no_negative_rate() -> None:
    picture = compare(NOW, replace(BEFORE, at=14.0))
    assert all(row.messages_in == 0 for row in picture.topics)
    assert picture.bytes_in == 0


TEXT = r"""# HELP headrace_cluster_info Always 1; who this broker is.
# TYPE headrace_cluster_info gauge
headrace_cluster_info{cluster_id="c",node_id="0"} 1
headrace_request_seconds_bucket{api="Fetch",le="0.1"} 2
headrace_request_seconds_count{api="Fetch"} 5
headrace_request_seconds_count{api="Produce"} 7
headrace_request_errors_total{api="Fetch",error="NOT_LEADER"} 2
headrace_connections{listener="A"} 3
headrace_connections{listener="B"} 1
headrace_topic_messages_in_total{topic="a\"b"} 4
headrace_topic_bytes_out_total{topic="a\"b"} 1.5e3
other_metric 1
"""


def test_the_figures_of_interest_are_read_from_metrics() -> None:
    found = parse_metrics(TEXT, "c", 1.0)
    assert found is not None
    assert (found.requests, found.errors, found.connections) == (12, 2, 4)
    assert found.topics == {
        'a"b': {"messages_in": 4, "bytes_in": 0, "messages_out": 0, "bytes_out": 1500}
    }


def test_metrics_of_somebody_else_do_not_count() -> None:
    assert parse_metrics(TEXT, "another", 1.0) is None
    assert parse_metrics("<html>no metrics</html>", "c", 1.0) is None


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("off", None),
        ("auto", "http://[::1]:8080/metrics"),
        ("http://h:1", "http://h:1/metrics"),
        ("http://h:1/", "http://h:1/metrics"),
        ("https://h/own/path", "https://h/own/path"),
    ],
)
def test_the_address_of_the_metrics(metrics: str, expected: str | None) -> None:
    assert url_for(metrics, "[::1]:9092,other:9092") == expected


def test_an_address_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(typer.BadParameter, match="expected http://HOST:PORT"):
        url_for("host:80", "h:9092")


def shown(picture: TopView, rows: int) -> str:
    console = Console(width=120, no_color=True)
    with console.capture() as captured:
        console.print(render(picture, rows))
    return captured.get()


def test_the_screen_shows_the_busiest_and_says_how_many_more() -> None:
    picture = compare(BEFORE, NOW)
    text = shown(picture, 1)
    assert "orders" in text
    assert "quiet" not in text
    assert "and 2 more" in text
    assert "not fresh" not in text
    picture.trouble = "no broker reached"
    assert "not fresh: no broker reached" in shown(picture, 5)


def test_names_are_no_markup() -> None:
    picture = compare(BEFORE, replace(NOW, topics={"[red]x": TopicSample(1, 1, 1, 1)}))
    assert "[red]x" in shown(picture, 5)


def test_figures_are_short() -> None:
    assert [rate(value) for value in (None, 0, 0.25, 9.96, 12.3, 12_345.6)] == [
        "-", "0", "0.2", "10.0", "12", "12,346",
    ]  # fmt: skip
    assert [size(value) for value in (None, 0, 999, 1_500, 2_500_000, 3e15, 3e18)] == [
        "-", "0 B", "999 B", "1.5 kB", "2.5 MB", "3.0 PB", "3000.0 PB",
    ]  # fmt: skip
