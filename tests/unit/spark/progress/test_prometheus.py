"""Metrics of queries, read back with the parser of Prometheus' own client."""

import http.client
import re
import socket
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.core.errors import InvalidConfig
from headrace.spark.progress.prometheus import (
    CONTENT_TYPE,
    OF_LAST_BATCH,
    OF_QUERY,
    OF_TOPIC,
    Counters,
    MetricsServer,
)
from tests.support.spark_progress import BEGIN, batch

Labels = tuple[tuple[str, str], ...]


def samples(text: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name.removeprefix("headrace_pipeline_"), tuple(sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(query: str, **labels: str) -> Labels:
    return tuple(sorted({"query": query, **labels}.items()))


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def server(counters: Counters) -> Iterator[MetricsServer]:
    started = MetricsServer("127.0.0.1:0", counters)
    yield started
    started.close()


def ask(server: MetricsServer, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_counts_add_up_and_gauges_tell_the_last_batch(counters: Counters) -> None:
    counters.count(batch(0, rows=100, batch_ms=500, lag={"clicks": 7, "views": 0}))
    last = batch(1, rows=50, batch_ms=1500, lag={"clicks": 3}, state_rows=4, watermark=BEGIN)
    counters.count(last)
    found = samples(counters.text())
    query = of("clicks-topic")
    assert found["batches_total", query] == 2
    assert found["rows_total", query] == 150
    assert found["last_batch", query] == 1
    assert found["last_batch_rows", query] == 50
    assert found["last_batch_seconds", query] == 1.5
    assert found["last_batch_timestamp_seconds", query] == BEGIN + 1
    assert found["state_rows", query] == 4
    assert found["watermark_timestamp_seconds", query] == BEGIN
    assert found["lag_records", of("clicks-topic", topic="clicks")] == 3
    assert found["lag_before_records", of("clicks-topic", topic="clicks")] == 110
    assert ("lag_records", of("clicks-topic", topic="views")) not in found


def test_late_rows_add_up_and_a_lower_bound_says_so(counters: Counters) -> None:
    counters.count(batch(0, late=7, late_of=100, late_partly=2))
    counters.count(batch(1, late=3, late_of=100))
    found = samples(counters.text())
    query = of("clicks-topic")
    assert (found["late_rows_total", query], found["partly_late_rows_total", query]) == (10, 2)
    assert found["late_rows_exact", query] == 1
    counters.count(batch(2, late=0, late_of=100, late_is_exact=False))
    assert samples(counters.text())["late_rows_exact", query] == 0


def test_batch_times_are_a_histogram(counters: Counters) -> None:
    for ms in (50, 150, 4000, 3_600_000):
        counters.count(batch(0, batch_ms=ms))
    found = samples(counters.text())
    below = [
        found["batch_seconds_bucket", of("clicks-topic", le=bound)]
        for bound in ("0.1", "0.2", "2.0", "5.0", "1800.0", "+Inf")
    ]
    assert below == [1, 2, 2, 3, 3, 4]
    assert found["batch_seconds_count", of("clicks-topic")] == 4
    assert found["batch_seconds_sum", of("clicks-topic")] == 3604.2


def test_a_query_runs_until_it_ends_and_failures_are_counted(counters: Counters) -> None:
    counters.started("a")
    assert samples(counters.text())["running", of("a")] == 1
    counters.ended("a", failed=True)
    found = samples(counters.text())
    assert (found["running", of("a")], found["failures_total", of("a")]) == (0, 1)
    counters.started("a")
    counters.ended("a", failed=False)
    assert samples(counters.text())["failures_total", of("a")] == 1


def test_names_of_any_kind_are_escaped(counters: Counters) -> None:
    odd = 'a "quoted"\\ name\nof two lines'
    counters.count(batch(0, query=odd))
    assert samples(counters.text())["rows_total", of(odd)] == 100


def test_metrics_are_served_over_http(server: MetricsServer, counters: Counters) -> None:
    counters.count(batch(0))
    status, kind, text = ask(server, "/metrics?name=all")
    assert (status, kind) == (200, CONTENT_TYPE)
    assert samples(text)["rows_total", of("clicks-topic")] == 100
    assert ask(server, "/")[0] == 404


def test_every_metric_has_its_type_and_is_told_once(counters: Counters) -> None:
    counters.count(batch(0, watermark=BEGIN))
    told = re.findall(r"^# TYPE (\w+) (\w+)$", counters.text(), re.MULTILINE)
    assert told == [(each.name, each.kind) for each in (*OF_QUERY, *OF_LAST_BATCH, *OF_TOPIC)]
    assert len(dict(told)) == len(told)


def test_a_port_alone_is_of_this_machine_only(counters: Counters) -> None:
    for address in ("0", ":0"):
        server = MetricsServer(address, counters)
        assert server.address.startswith("127.0.0.1:")
        server.close()


def test_an_address_may_be_one_of_ipv6(counters: Counters) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = MetricsServer("[::1]:0", counters)
    try:
        assert server.address.startswith("[::1]:")
        assert ask(server, "/metrics")[0] == 200
    finally:
        server.close()


@pytest.mark.parametrize("address", ["off", "nonsense", "127.0.0.1:99999", ""])
def test_an_address_that_is_none_is_refused(counters: Counters, address: str) -> None:
    with pytest.raises(InvalidConfig, match="metrics: "):
        MetricsServer(address, counters)


def test_a_port_that_is_taken_is_refused_by_name(counters: Counters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"cannot listen on 127.0.0.1:{port}"):
            MetricsServer(str(port), counters)
