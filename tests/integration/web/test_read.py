"""Reading a partition by offset or time, in every format."""

import json
from typing import Any

import httpx
import pytest

from headrace.client import Client
from tests.support.web import Web


def fill(web: Web, topic: str, count: int, *, size: int = 20, partition: int = 0) -> None:
    """Records 0, 1, 2 … with timestamps 1,000, 2,000, 3,000 …"""
    with Client(web.broker.bootstrap_servers) as client, client.producer() as producer:
        for number in range(count):
            value = json.dumps({"n": number, "x": "y" * size}).encode()
            producer.send(topic, value, partition=partition, timestamp_ms=(number + 1) * 1000)
        producer.flush()


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [record["value"]["n"] for record in records]


def test_records_are_read_from_an_offset_on(web: Web, topic: str) -> None:
    fill(web, topic, 20)
    found = web.records(topic, offset=5, count=3)
    assert numbers(found) == [5, 6, 7]
    first = found[0]
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 0, 5)
    assert (first["key"], first["timestamp"]) == (None, 6000)


def test_records_are_read_from_a_time_on(web: Web, topic: str) -> None:
    fill(web, topic, 20)
    assert numbers(web.records(topic, timestamp=7001))[:2] == [7, 8]
    assert web.records(topic, timestamp=10**12) == []


def test_without_a_place_reading_begins_at_the_beginning(web: Web, topic: str) -> None:
    fill(web, topic, 3)
    assert numbers(web.records(topic)) == [0, 1, 2]


def test_headers_tell_where_to_go_on(http: httpx.Client, web: Web, topic: str) -> None:
    fill(web, topic, 10)
    answer = http.get(f"/topics/{topic}/partitions/0/records?offset=2&count=4")
    assert answer.headers["headrace-next-offset"] == "6"
    assert answer.headers["headrace-high-watermark"] == "10"
    assert answer.headers["headrace-log-start-offset"] == "0"
    assert http.get(f"/topics/{topic}/partitions/0/records?offset=10").json() == []


def test_many_records_come_in_one_answer_and_in_order(web: Web, topic: str) -> None:
    fill(web, topic, 12_000, size=60)
    found = web.records(topic, count=1_000_000, max_bytes=50_000_000)
    assert numbers(found) == list(range(12_000))
    assert numbers(web.records(topic, offset=11_000, count=700)) == list(range(11_000, 11_700))


def test_max_bytes_bounds_an_answer(web: Web, topic: str) -> None:
    fill(web, topic, 5000, size=100)
    found = web.records(topic, count=1_000_000, max_bytes=100_000)
    assert 500 <= len(found) < 2500
    assert numbers(found) == list(range(len(found)))


@pytest.mark.parametrize(("max_bytes", "given"), [(1, 1), (20, 2), (29, 2), (30, 3), (4000, 400)])
def test_max_bytes_is_looked_at_before_each_record(
    http: httpx.Client, topic: str, max_bytes: int, given: int
) -> None:
    """Also within a batch, which is read whole."""
    content = b"".join(b'{"value":"%08d"}\n' % number for number in range(1000))
    kind = {"content-type": "application/x-ndjson"}
    path = f"/topics/{topic}/partitions/0"
    assert http.post(path, content=content, headers=kind).json()["produced"] == 1000
    answer = http.get(f"{path}/records", params={"count": 1000, "max_bytes": max_bytes})
    assert [record["offset"] for record in answer.json()] == list(range(given))
    assert answer.headers["headrace-next-offset"] == str(given)


def test_lines_instead_of_a_list(http: httpx.Client, web: Web, topic: str) -> None:
    fill(web, topic, 3)
    headers = {"accept": "application/x-ndjson"}
    answer = http.get(f"/topics/{topic}/partitions/0/records", headers=headers)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert numbers([json.loads(line) for line in answer.text.splitlines()]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("accept", "key", "value"),
    [
        ("application/json", "k", {"a": 1}),
        ("application/vnd.kafka.json.v2+json", "k", {"a": 1}),
        ("application/vnd.kafka.binary.v2+json", "aw==", "eyJhIjoxfQ=="),
        ("application/vnd.kafka.v2+json", "aw==", "eyJhIjoxfQ=="),
        ("application/vnd.kafka.json.v2+json, application/json;q=0.5", "k", {"a": 1}),
    ],
)
def test_the_client_chooses_the_format(
    http: httpx.Client, topic: str, accept: str, key: str, value: Any
) -> None:
    body = {"records": [{"key": "k", "value": {"a": 1}}]}
    http.post(
        f"/topics/{topic}/partitions/0",
        content=json.dumps(body, separators=(",", ":")),
        headers={"content-type": "application/json"},
    )
    answer = http.get(f"/topics/{topic}/partitions/0/records", headers={"accept": accept})
    assert answer.headers["content-type"] == accept.partition(",")[0]
    (found,) = answer.json()
    assert (found["key"], found["value"]) == (key, value)
    # JSON keys are JSON there, which k is not: the answer says so.
    is_json_key = "kafka.json" in accept
    assert found.get("key_format") == ("text" if is_json_key else None)


def test_a_read_waits_for_the_first_record(web: Web, topic: str) -> None:
    import threading

    found: list[list[dict[str, Any]]] = []
    reading = threading.Thread(
        target=lambda: found.append(web.records(topic, offset=0, timeout=20_000))
    )
    reading.start()
    web.ask("POST", f"/topics/{topic}/partitions/0", json={"records": [{"value": {"n": 1}}]})
    reading.join(20)
    assert numbers(found[0]) == [1]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/nowhere/partitions/0/records", 404, 40401),
        ("/topics/{topic}/partitions/3/records", 404, 40402),
        ("/topics/{topic}/partitions/x/records", 404, 404),
        ("/topics/{topic}/partitions/-1/records", 404, 404),
        ("/topics/{topic}/partitions/0/records?offset=1", 416, 41601),
        ("/topics/{topic}/partitions/0/records?offset=-1", 422, 422),
        ("/topics/{topic}/partitions/0/records?offset=0&timestamp=0", 422, 422),
        ("/topics/{topic}/partitions/0/records?ofset=0", 422, 422),
        ("/topics/{topic}/partitions/0/records?count=0", 422, 422),
    ],
)
def test_a_bad_place_is_refused_with_a_hint(
    web: Web, topic: str, path: str, status: int, code: int
) -> None:
    answer = web.ask("GET", path.replace("{topic}", topic))
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert answer.json()["hint"] or status == 422


def test_a_format_with_a_schema_cannot_be_had(web: Web, topic: str) -> None:
    headers = {"accept": "application/vnd.kafka.avro.v2+json"}
    answer = web.ask("GET", f"/topics/{topic}/partitions/0/records", headers=headers)
    assert answer.status_code == 406
    assert "registry" in answer.json()["message"]
