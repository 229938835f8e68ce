"""What clients of REST Proxy v2 send and expect, where they do not ask twice."""

import time
from typing import Any

import httpx
import pytest

from headrace.client import Client
from tests.integration.web.test_consumers import Consumer, produce, values
from tests.support.web import Web

V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
EMBEDDED = [JSON, BINARY, *(f"application/vnd.kafka.{x}.v2+json" for x in ("avro", "protobuf"))]


def write(web: Web, topic: str, *contents: bytes) -> None:
    with Client(web.broker.bootstrap_servers) as client, client.producer() as producer:
        for each in contents:
            producer.send(topic, each, partition=0)
        producer.flush()


def reader(http: httpx.Client, group: str, topic: str, **config: str) -> Consumer:
    """An instance that reads partition 0 from its beginning."""
    consumer = Consumer(http, group, **config)
    where = {"partitions": [{"topic": topic, "partition": 0}]}
    assert consumer.post("/assignments", where).status_code == 204
    return consumer


# -- what is taken


@pytest.mark.parametrize("kind", EMBEDDED)
def test_one_header_does_for_every_call_of_a_consumer(
    http: httpx.Client, topic: str, group: str, kind: str
) -> None:
    headers = {"content-type": kind, "accept": kind}
    where = {"topic": topic, "partition": 0}
    made = http.post(f"/consumers/{group}", json={"format": "binary"}, headers=headers)
    assert made.status_code == 200, made.text
    assert made.headers["content-type"] == kind
    base = made.json()["base_uri"]

    def status(method: str, path: str, body: Any = None) -> int:
        return http.request(method, base + path, json=body, headers=headers).status_code

    assert status("POST", "/subscription", {"topics": [topic]}) == 204
    assert status("GET", "/subscription") == 200
    assert status("DELETE", "/subscription") == 204
    assert status("POST", "/assignments", {"partitions": [where]}) == 204
    assert status("GET", "/assignments") == 200
    assert status("POST", "/positions", {"offsets": [{**where, "offset": 0}]}) == 204
    assert status("POST", "/positions/beginning", {"partitions": [where]}) == 204
    assert status("GET", "/positions") == 200
    assert status("POST", "/offsets", {"offsets": [{**where, "offset": 0}]}) == 204
    assert status("GET", "/offsets", {"partitions": [where]}) == 200
    assert status("DELETE", "") == 204


def test_an_answer_without_a_body_has_no_type_to_be_refused(
    http: httpx.Client, topic: str, group: str
) -> None:
    consumer = Consumer(http, group)
    headers = {"accept": "text/html"}
    body = {"topics": [topic]}
    answer = http.post(f"{consumer.base}/subscription", json=body, headers=headers)
    assert answer.status_code == 204
    assert http.get(f"{consumer.base}/subscription", headers=headers).status_code == 406
    assert http.delete(consumer.base, headers=headers).status_code == 204


def test_a_slash_at_the_end_of_a_path_means_nothing(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    write(web, topic, b"1")
    assert topic in http.get("/topics/").json()
    produced = http.post(f"/topics/{topic}/", json={"records": [{"value": 2, "partition": 0}]})
    assert produced.status_code == 200
    settings = {"format": "json", "fetch.min.bytes": 2}
    base = http.post(f"/consumers/{group}/", json=settings).json()["base_uri"]
    where = {"partitions": [{"topic": topic, "partition": 0}]}
    assert http.post(f"{base}/assignments/", json=where).status_code == 204
    assert http.post(f"{base}/positions/beginning/", json=where).status_code == 204
    read = http.get(f"{base}/records/?timeout=5000").json()
    assert values(read) == [1, 2]
    assert http.delete(f"{base}/").status_code == 204
    assert http.get("/topics//").status_code == 404


@pytest.mark.parametrize(
    "further",
    [
        {"topic.metadata.refresh.interval.ms": 100},
        {"isolation.level": "read_uncommitted"},
        {"enable.auto.commit": False},
        {"format": "JSON"},
        {"format": None, "auto.offset.reset": None, "auto.commit.enable": None},
        {"responseMinBytes": 5, "requestWaitMs": "700"},
    ],
)
def test_an_instance_is_created_whatever_else_its_config_has(
    http: httpx.Client, group: str, further: dict[str, Any]
) -> None:
    answer = http.post(f"/consumers/{group}", json={"name": "one", **further})
    assert answer.status_code == 200, answer.text
    http.delete(answer.json()["base_uri"])


def test_an_instance_may_be_named_by_an_id(http: httpx.Client, group: str) -> None:
    made = http.post(f"/consumers/{group}", json={"id": "x2", "name": "one"}).json()
    assert made["instance_id"] == "x2"
    assert made["base_uri"].endswith("/instances/x2")
    http.delete(made["base_uri"])


def test_an_empty_object_commits_what_was_read(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    write(web, topic, b"1", b"2")
    consumer = reader(http, group, topic, **{"auto.commit.enable": "false"})
    assert consumer.post("/offsets", {}).status_code == 204
    consumer.read(2)
    assert consumer.post("/offsets", {}).status_code == 204
    (offset,) = consumer.get("/offsets")["offsets"]
    assert offset["offset"] == 2
    consumer.close()


def test_a_query_may_have_more_in_it_and_numbers_that_mean_the_default(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    write(web, topic, b"1")
    consumer = reader(http, group, topic)
    query = {"foo": 1, "timeout": -1, "max_bytes": -1}
    assert values(consumer.get("/records", **query)) == [1]
    assert consumer.get("/records", timeout=1, max_bytes=2**40) == []
    assert http.get("/topics?foo=1").status_code == 200
    assert http.post(f"{consumer.base}/offsets?async=true&foo=1").status_code == 204
    consumer.close()


def test_the_root_answers_an_empty_object(http: httpx.Client) -> None:
    answer = http.get("/")
    assert (answer.status_code, answer.json()) == (200, {})


@pytest.mark.parametrize(
    ("path", "accept", "given"),
    [
        ("/topics", "*/*", V2),
        ("/topics", "application/json", "application/json"),
        ("/brokers", "application/vnd.kafka.v2+json, application/json", V2),
        ("/brokers", "application/vnd.kafka.v1+json", V2),
        ("/", "text/html, */*;q=0.8", V2),
        ("/cluster", "*/*", "application/json"),
        ("/groups", "*/*", "application/json"),
    ],
)
def test_answers_of_rest_proxy_s_paths_have_its_type(
    http: httpx.Client, path: str, accept: str, given: str
) -> None:
    answer = http.get(path, headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, given)


# -- reading


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", BINARY),
        (f"{BINARY}, {V2}, application/json, */*", BINARY),
        (f"{JSON};q=0.5, {BINARY};q=0.1", BINARY),
        ("application/json", "application/json"),
        (V2, V2),
    ],
)
def test_records_come_in_the_format_of_the_instance(
    web: Web, http: httpx.Client, topic: str, group: str, accept: str, given: str
) -> None:
    write(web, topic, b"foo")
    consumer = reader(http, group, topic, format="binary")
    answer = http.get(f"{consumer.base}/records", headers={"accept": accept})
    assert answer.headers["content-type"] == given
    (record,) = answer.json()
    assert record["value"] == "Zm9v"
    assert "value_format" not in record
    consumer.close()


@pytest.mark.parametrize(
    ("accept", "code"),
    [(JSON, 40601), ("application/vnd.kafka.avro.v2+json", 40601), ("text/html", 406)],
)
def test_another_format_than_that_of_the_instance_cannot_be_had(
    http: httpx.Client, topic: str, group: str, accept: str, code: int
) -> None:
    consumer = reader(http, group, topic, format="binary")
    answer = http.get(f"{consumer.base}/records", headers={"accept": accept})
    assert (answer.status_code, answer.json()["error_code"]) == (406, code)
    consumer.close()


def test_a_value_that_is_not_json_is_never_passed_off_as_json(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    """What comes before it is read; then it is named, until the client goes on behind it."""
    write(web, topic, b"1", b"not json", b"3")
    consumer = reader(http, group, topic, **{"fetch.min.bytes": "-1"})
    assert values(consumer.get("/records", timeout=5000)) == [1]
    for _ in range(2):
        answer = http.get(f"{consumer.base}/records")
        assert (answer.status_code, answer.json()["error_code"]) == (422, 422)
        told = answer.json()["message"]
        assert "value deserialization error for format json" in told
        assert f"{topic}-0" in told
        assert "offset 1" in told
    at = {"offsets": [{"topic": topic, "partition": 0, "offset": 2}]}
    assert consumer.post("/positions", at).status_code == 204
    assert values(consumer.get("/records", timeout=500)) == [3]
    consumer.close()


def test_an_answer_collects_until_its_time_is_up(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    """Records that come while the client waits, one after the other, are in one answer."""
    settings = {"fetch.min.bytes": "-1", "consumer.request.timeout.ms": "60000"}
    consumer = reader(http, group, topic, **settings)
    write(web, topic, b"0")
    with http.stream("GET", f"{consumer.base}/records?timeout=5000") as answer:
        # The answer has begun with the first.
        write(web, topic, b"1")
        write(web, topic, b"2")
        answer.read()
    assert values(answer.json()) == [0, 1, 2]
    consumer.close()


@pytest.mark.parametrize("name", ["fetch.min.bytes", "responseMinBytes"])
def test_an_answer_with_enough_bytes_does_not_wait_for_more(
    web: Web, http: httpx.Client, topic: str, group: str, name: str
) -> None:
    write(web, topic, b"111", b"222")
    long: dict[str, Any] = {"consumer.request.timeout.ms": "60000", "fetch.min.bytes": None}
    consumer = reader(http, group, topic, **{**long, name: 6})
    started = time.monotonic()
    assert values(consumer.get("/records", timeout=60_000)) == [111, 222]
    assert time.monotonic() - started < 30
    consumer.close()


@pytest.mark.parametrize("name", ["consumer.request.timeout.ms", "requestWaitMs"])
def test_an_instance_waits_as_long_as_its_config_says(
    http: httpx.Client, topic: str, group: str, name: str
) -> None:
    consumer = reader(http, group, topic, **{name: "1500"})
    started = time.monotonic()
    assert consumer.get("/records") == []
    assert time.monotonic() - started > 1.4
    consumer.close()


def test_a_timeout_longer_than_that_is_for_the_first_record_alone(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    settings = {"consumer.request.timeout.ms": "100", "fetch.min.bytes": "-1"}
    consumer = reader(http, group, topic, **settings)
    started = time.monotonic()
    assert consumer.get("/records", timeout=1200) == []
    assert time.monotonic() - started > 1
    write(web, topic, b"1")
    started = time.monotonic()
    assert values(consumer.get("/records", timeout=60_000)) == [1]
    assert time.monotonic() - started < 30
    consumer.close()


@pytest.mark.parametrize(
    ("count", "size", "max_bytes", "given"),
    [(5, 7, 10, 1), (5, 7, 14, 2), (50, 1000, 10_000, 10), (3, 50, 1, 1), (400, 10, 3500, 350)],
)
def test_max_bytes_is_looked_at_before_each_record(
    web: Web,
    http: httpx.Client,
    topic: str,
    group: str,
    count: int,
    size: int,
    max_bytes: int,
    given: int,
) -> None:
    contents = [b"%0*d" % (size, 1) for _ in range(count)]
    write(web, topic, *contents)
    consumer = reader(http, group, topic, format="binary", **{"auto.commit.enable": "false"})
    answer = consumer.get("/records", timeout=10_000, max_bytes=max_bytes)
    assert [record["offset"] for record in answer] == list(range(given))
    # The rest is the next answer's, and nothing of it counts as read.
    assert consumer.post("/offsets").status_code == 204
    assert consumer.get("/offsets")["offsets"][0]["offset"] == given
    following = consumer.get("/records", timeout=10_000, max_bytes=1)
    assert [record["offset"] for record in following] == [given]
    consumer.close()


def test_max_bytes_spans_partitions_and_loses_nothing(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    produce(web, topic, 60)
    consumer = Consumer(http, group)
    consumer.subscribe(topic)
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while len(found) < 60 and time.monotonic() < deadline:
        some = consumer.get("/records", timeout=2000, max_bytes=8)
        assert len(some) <= 8
        found += some
    assert values(found) == list(range(60))
    consumer.close()


# -- subscriptions and assignments


def test_a_pattern_is_told_by_the_topics_that_match(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    names = [web.broker.create_topic(f"{topic}.p{letter}") for letter in "abc"]
    consumer = Consumer(http, group)
    assert consumer.get("/subscription") == {"topics": []}
    pattern = {"topic_pattern": f"{topic}[.]p.*"}
    assert consumer.post("/subscription", pattern).status_code == 204
    assert consumer.get("/subscription") == {"topics": names}
    consumer.close()


def test_a_topic_that_is_not_there_yet_can_be_assigned(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    later = f"{topic}-later"
    consumer = reader(http, group, later)
    assert consumer.get("/assignments")["partitions"] == [{"topic": later, "partition": 0}]
    web.broker.create_topic(later)
    write(web, later, b"1")
    assert values(consumer.read(1)) == [1]
    consumer.close()
