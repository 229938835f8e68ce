"""Live streams: events and lines, and going on exactly where a stream broke off."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import httpx
import pytest

from headrace.client import Client
from headrace.testing import Broker
from headrace.web.settings import WebSettings
from tests.support.web import Event, Web, events, remote_web


@contextmanager
def stream(
    http: httpx.Client, topic: str, query: str = "", **headers: str
) -> Iterator[Iterator[Event]]:
    sent = {"accept": "text/event-stream", **{k.replace("_", "-"): v for k, v in headers.items()}}
    with http.stream("GET", f"/topics/{topic}/stream{query}", headers=sent) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield events(answer.iter_lines())


def produce(web: Web, topic: str, count: int, first: int = 0) -> list[int]:
    """Numbers spread over the partitions of a topic."""
    made = list(range(first, first + count))
    with Client(web.broker.bootstrap_servers) as client, client.producer() as producer:
        for number in made:
            producer.send(topic, b"%d" % number, partition=number % 3)
        producer.flush()
    return made


def values(found: list[Event]) -> list[int]:
    return sorted(event.data["value"] for event in found)


def test_a_stream_begins_at_the_end_and_follows(web: Web, http: httpx.Client, topic: str) -> None:
    produce(web, topic, 9)
    with stream(http, topic) as found:
        produce(web, topic, 9, first=100)
        assert values(list(islice(found, 9))) == list(range(100, 109))


def test_a_stream_from_the_beginning_shows_everything(
    web: Web, http: httpx.Client, topic: str
) -> None:
    produce(web, topic, 2000)
    with stream(http, topic, "?from=beginning") as found:
        assert values(list(islice(found, 2000))) == list(range(2000))


def test_one_partition_from_an_offset(web: Web, http: httpx.Client, topic: str) -> None:
    produce(web, topic, 30)
    with stream(http, topic, "?partition=1&offset=4") as found:
        got = list(islice(found, 6))
    assert [event.data["value"] for event in got] == [13, 16, 19, 22, 25, 28]
    assert got[0].id == "1:5"


@pytest.mark.parametrize("cut", [0, 1, 7, 299, 300, 301, 899])
def test_last_event_id_goes_on_exactly_in_all_partitions(
    web: Web, http: httpx.Client, topic: str, cut: int
) -> None:
    """Nothing twice, nothing left out, wherever the stream broke off."""
    produce(web, topic, 900)
    with stream(http, topic, "?from=beginning") as found:
        before = list(islice(found, cut))
    produce(web, topic, 30, first=900)
    last = before[-1].id if before else "0:0,1:0,2:0"
    with stream(http, topic, last_event_id=last) as found:
        after = list(islice(found, 930 - cut))
    assert values(before + after) == list(range(930))
    for partition in range(3):
        offsets = [e.data["offset"] for e in before + after if e.data["partition"] == partition]
        assert offsets == list(range(310))


def test_a_stream_broken_off_before_its_first_event_loses_nothing(
    web: Web, http: httpx.Client, topic: str
) -> None:
    produce(web, topic, 9)
    headers = {"accept": "text/event-stream"}
    with http.stream("GET", f"/topics/{topic}/stream", headers=headers) as answer:
        lines = answer.iter_lines()
        first = next(line for line in lines if line.startswith("id: "))
    produce(web, topic, 3, first=50)
    with stream(http, topic, last_event_id=first.removeprefix("id: ")) as found:
        assert values(list(islice(found, 3))) == [50, 51, 52]


def test_an_id_also_works_in_the_query(web: Web, http: httpx.Client, topic: str) -> None:
    produce(web, topic, 9)
    with stream(http, topic, "?from=0:3,1:2,2:3") as found:
        assert values(list(islice(found, 1))) == [7]


def test_a_partition_unknown_to_the_id_is_read_from_its_beginning(
    web: Web, http: httpx.Client, topic: str
) -> None:
    produce(web, topic, 9)
    with stream(http, topic, last_event_id="0:3,1:3") as found:
        assert values(list(islice(found, 3))) == [2, 5, 8]


def test_a_time_to_begin_with(web: Web, http: httpx.Client, topic: str) -> None:
    with Client(web.broker.bootstrap_servers) as client, client.producer() as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=number * 1000)
        producer.flush()
    with stream(http, topic, "?timestamp=6500") as found:
        assert values(list(islice(found, 3))) == [7, 8, 9]


def test_lines_for_curl(web: Web, http: httpx.Client, topic: str) -> None:
    produce(web, topic, 3)
    headers = {"accept": "application/x-ndjson"}
    path = f"/topics/{topic}/stream?from=beginning"
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        found = [json.loads(line) for line in islice((x for x in answer.iter_lines() if x), 3)]
    assert sorted(record["value"] for record in found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?from=yesterday", 422),
        ("?from=0:1,x", 422),
        ("?from=0:99999999999999999999", 422),
        ("?offset=3", 422),
        ("?partition=9", 404),
        ("?partition=0&offset=5", 416),
    ],
)
def test_a_bad_place_is_refused_before_the_stream_begins(
    web: Web, topic: str, query: str, status: int
) -> None:
    answer = web.ask("GET", f"/topics/{topic}/stream{query}")
    assert answer.status_code == status
    assert answer.json()["message"]


def test_there_is_no_stream_of_a_topic_that_does_not_exist(web: Web) -> None:
    assert web.ask("GET", "/topics/nowhere/stream").json()["error_code"] == 40401


def test_a_stream_follows_partitions_that_are_added() -> None:
    """From their first record on, and with all partitions in the ids."""
    settings = WebSettings(stream_growth_ms=100, stream_ping_ms=100)
    with Broker() as broker, remote_web(broker, settings) as web, web.client() as http:
        broker.create_topic("growing", partitions=3)
        with stream(http, "growing") as found:
            produce(web, "growing", 3)
            assert values(list(islice(found, 3))) == [0, 1, 2]
            http.patch("/topics/growing", json={"partitions": 4})
            body = {"records": [{"value": 77, "partition": 3}]}
            assert http.post("/topics/growing", json=body).status_code == 200
            (event,) = islice(found, 1)
        assert (event.data["value"], event.id) == (77, "0:1,1:1,2:1,3:1")


def test_a_stream_of_a_topic_that_is_deleted_says_so_and_ends(
    web: Web, http: httpx.Client, topic: str
) -> None:
    produce(web, topic, 3)
    with stream(http, topic, "?from=beginning") as found:
        assert len(list(islice(found, 3))) == 3
        assert web.ask("DELETE", f"/topics/{topic}").status_code == 204
        (last,) = found
    assert (last.kind, last.data["error_code"]) == ("error", 40401)
