"""Records go in over HTTP: formats, partitions, errors, and streams of lines."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from headrace.client import Client
from headrace.core.ids import TopicPartition
from tests.support.web import Web

BINARY = "application/vnd.kafka.binary.v2+json"
EMBEDDED_JSON = "application/vnd.kafka.json.v2+json"
LINES = "application/x-ndjson"


def stored(web: Web, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values as a Kafka client reads them."""
    where = TopicPartition(topic, partition)
    with Client(web.broker.bootstrap_servers) as client, client.reader({where: 0}) as reader:
        found = reader.poll(2000).get(where, [])
        return [(record.key, record.value) for record in found]


def post(http: httpx.Client, path: str, body: Any, kind: str = "application/json") -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":"))
    answer = http.post(path, content=content, headers={"content-type": kind})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_plain_json_takes_text_keys_and_json_values(
    web: Web, http: httpx.Client, topic: str
) -> None:
    body = {"records": [{"key": "a", "value": {"n": 1}}, {"key": 7, "value": "text"}]}
    answer = post(http, f"/topics/{topic}/partitions/0", body)
    assert [each["offset"] for each in answer["offsets"]] == [0, 1]
    assert stored(web, topic) == [(b"a", b'{"n":1}'), (b"7", b'"text"')]


def test_embedded_json_keeps_keys_as_json(web: Web, http: httpx.Client, topic: str) -> None:
    post(
        http,
        f"/topics/{topic}/partitions/0",
        {"records": [{"key": "a", "value": 1}]},
        EMBEDDED_JSON,
    )
    assert stored(web, topic) == [(b'"a"', b"1")]


@pytest.mark.parametrize("kind", [BINARY, "application/vnd.kafka.v2+json"])
def test_binary_is_base64(web: Web, http: httpx.Client, topic: str, kind: str) -> None:
    value = b64encode(b"\x00\xff").decode()
    post(http, f"/topics/{topic}/partitions/0", {"records": [{"key": "", "value": value}]}, kind)
    assert stored(web, topic) == [(b"", b"\x00\xff")]


def test_null_is_a_tombstone_in_every_format(web: Web, http: httpx.Client, topic: str) -> None:
    for kind in ("application/json", BINARY, EMBEDDED_JSON):
        post(http, f"/topics/{topic}/partitions/0", {"records": [{"value": None}, {}]}, kind)
    assert stored(web, topic) == [(None, None)] * 6


def test_what_is_read_can_be_sent_back_as_it_is(web: Web, http: httpx.Client, topic: str) -> None:
    """Bytes of any kind, headers too, through plain JSON and back."""
    values = [b"text", b"\xff\x00", b'{"a":1}', b'"quoted"', b"", None, b"[1,\n 2]", b"nul", b"01"]
    with Client(web.broker.bootstrap_servers) as client, client.producer() as producer:
        for value in values:
            headers = [("h", b"\xfe"), ("t", b"text"), ("n", None)]
            producer.send(topic, value, key=value, partition=0, headers=headers)
        producer.flush()
    read = http.get(f"/topics/{topic}/partitions/0/records").json()
    for record in read:
        for name in ("topic", "offset", "partition", "timestamp"):
            del record[name]
    post(http, f"/topics/{topic}/partitions/1", {"records": read})
    first, second = stored(web, topic, 0), stored(web, topic, 1)
    assert [key for key, _ in second] == values
    compact: dict[bytes | None, bytes | None] = {
        b"[1,\n 2]": b"[1,2]"
    }  # JSON is kept as JSON, on one line
    assert [value for _, value in second] == [compact.get(value, value) for _, value in first]
    back = http.get(f"/topics/{topic}/partitions/1/records").json()
    assert [record.get("headers") for record in back] == [record.get("headers") for record in read]


def test_keys_go_where_the_kafka_clients_send_them(
    web: Web, http: httpx.Client, topic: str
) -> None:
    keys = [f"key-{number}" for number in range(200)]
    body = {"records": [{"key": key, "value": None} for key in keys]}
    answer = post(http, f"/topics/{topic}", body)
    ours = [each["partition"] for each in answer["offsets"]]
    theirs: dict[str, int] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        theirs[message.key().decode()] = message.partition()

    # Java's partitioner, under the name that librdkafka has for it.
    settings = {"bootstrap.servers": web.broker.bootstrap_servers, "partitioner": "murmur2_random"}
    producer = Producer(settings)
    for key in keys:
        producer.produce(topic, key=key, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert ours == [theirs[key] for key in keys]
    assert set(ours) == {0, 1, 2}


def test_records_without_a_key_take_turns(http: httpx.Client, topic: str) -> None:
    answers = [
        post(http, f"/topics/{topic}", {"records": [{"value": number}]}) for number in range(9)
    ]
    partitions = [answer["offsets"][0]["partition"] for answer in answers]
    assert sorted(partitions) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert partitions[:3] == partitions[3:6]


def test_a_partition_that_does_not_exist_fails_alone(http: httpx.Client, topic: str) -> None:
    body = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 9}]}
    good, bad = post(http, f"/topics/{topic}", body)["offsets"]
    assert (good["partition"], good["offset"], good["error_code"]) == (0, 0, None)
    assert (bad["partition"], bad["offset"], bad["error_code"]) == (None, None, 50002)
    assert bad["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_each_record_tells_of_its_failure_also_where_all_fail(
    http: httpx.Client, topic: str
) -> None:
    path = f"/topics/{topic}/partitions/9"
    (stray,) = post(http, path, {"records": [{"value": 1}]})["offsets"]
    assert (stray["partition"], stray["error_code"]) == (None, 50002)
    large = {"records": [{"value": "x" * 2_000_000}, {"value": "y" * 2_000_000}]}
    for failed in post(http, f"/topics/{topic}", large)["offsets"]:
        assert (failed["partition"], failed["offset"], failed["error_code"]) == (None, None, 50002)
        assert failed["kafka_error"] == "MESSAGE_TOO_LARGE"


@pytest.mark.parametrize("large", [0, 1])
def test_a_record_that_is_too_large_fails_alone(
    web: Web, http: httpx.Client, topic: str, large: int
) -> None:
    """Whatever stands before or behind it in its partition."""
    records = [{"value": "small"}, {"value": "small"}]
    records[large] = {"value": "x" * 1_048_570}
    outcomes = post(http, f"/topics/{topic}/partitions/0", {"records": records})["offsets"]
    assert outcomes[large]["kafka_error"] == "MESSAGE_TOO_LARGE"
    assert outcomes[1 - large]["offset"] == 0
    assert [record["value"] for record in web.records(topic)] == ["small"]


@pytest.mark.parametrize("text", ["Zg", "Zg==", "Zg=", "Zg==\r\n"])
def test_base64_may_lack_padding_and_have_line_breaks(
    web: Web, http: httpx.Client, topic: str, text: str
) -> None:
    body = {"records": [{"value": text, "partition": 0}]}
    post(http, f"/topics/{topic}", body, kind=BINARY)
    (record,) = web.records(topic, 0)
    assert record["value"] == "f"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("application/vnd.kafka.v1+json", "aGk="),
        ("application/vnd.kafka+json", "aGk="),
        ("application/vnd.kafka.binary.v1+json", "aGk="),
        ("application/vnd.kafka.json.v1+json", "hi"),
        ("application/vnd.kafka.json+json", "hi"),
    ],
)
def test_content_types_of_older_clients_are_taken(
    web: Web, http: httpx.Client, topic: str, kind: str, value: str
) -> None:
    body = {"records": [{"value": value, "partition": 0}]}
    post(http, f"/topics/{topic}", body, kind=kind)
    (record,) = web.records(topic, 0)
    assert record["value"] == "hi"


def test_timestamps_and_headers_are_kept(http: httpx.Client, topic: str) -> None:
    record = {"value": 1, "timestamp": 1234, "headers": [{"name": "trace", "value": "abc"}]}
    post(http, f"/topics/{topic}/partitions/2", {"records": [record]})
    (found,) = http.get(f"/topics/{topic}/partitions/2/records").json()
    assert (found["timestamp"], found["headers"]) == (1234, record["headers"])


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acks_are_chosen_in_the_query(http: httpx.Client, topic: str, acks: str) -> None:
    answer = http.post(f"/topics/{topic}?acks={acks}", json={"records": [{"value": 1}]})
    assert answer.status_code == 200
    assert answer.json()["offsets"][0]["offset"] == (-1 if acks == "0" else 0)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"records": [', "application/json", 400),
        (b'{"records": [{"value": "\xff"}]}', "application/json", 400),
        (b'{"records": [{"value": ' + b"[" * 200_000, "application/json", 400),
        (b'{"records": []}', "application/json", 422),
        (b'{"records": [{"valeu": 1}]}', "application/json", 422),
        (b'{"records": [{"value": 1, "partition": "x"}]}', "application/json", 400),
        (b'{"records": [{"value": 1, "partition": -1}]}', "application/json", 422),
        (b'{"records": "x"}', "application/json", 400),
        (b'{"records": ["x"]}', "application/json", 400),
        (b'{"record": []}', "application/json", 422),
        (b'{"records": [{"value": "not base64"}]}', BINARY, 400),
        (b'{"records": [{"value": "Zm9vY"}]}', BINARY, 400),
        (b'{"records": [{"value": 5}]}', BINARY, 400),
        (b'{"records": [{"value": {"a": 1}}]}', BINARY, 400),
        (b'{"records": [{"value": 1}], "value_schema": "{}"}', "application/json", 422),
        (b'{"records": [{"value": 1}]}', "application/vnd.kafka.avro.v2+json", 415),
        (b'{"records": [{"value": 1}]}', "text/plain", 415),
        (b'{"records": [{"value": 1}]}', "application/x-www-form-urlencoded", 415),
    ],
)
def test_a_bad_body_is_refused_with_a_reason(
    web: Web, topic: str, body: bytes, kind: str, status: int
) -> None:
    answer = web.ask("POST", f"/topics/{topic}", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    told = answer.json()
    assert told["message"]
    assert str(told["error_code"]).startswith(str(status))
    assert web.records(topic) == []


def test_a_body_that_is_too_large_is_refused(web: Web, topic: str) -> None:
    """Announced, or found out while it comes in."""

    def parts() -> Iterator[bytes]:
        yield b'{"records": [{"value": "'
        for _ in range(100):
            yield b"x" * 65536

    kind = {"content-type": "application/json"}
    announced = web.ask("POST", f"/topics/{topic}", content=b"x" * 5_000_000, headers=kind)
    assert (announced.status_code, announced.json()["error_code"]) == (413, 41301)
    assert "x-ndjson" in announced.json()["hint"]
    chunked = web.ask("POST", f"/topics/{topic}", content=parts(), headers=kind)
    assert chunked.status_code == 413


def test_an_unknown_topic_is_told_apart_from_a_bad_name(web: Web) -> None:
    with web.client() as http:
        bad = http.post("/topics/b%C3%A4d", json={"records": [{"value": 1}]})
        assert (bad.status_code, bad.json()["kafka_error"]) == (422, "INVALID_TOPIC_EXCEPTION")


# -- streams of lines


def test_lines_are_appended_and_summed_up(web: Web, http: httpx.Client, topic: str) -> None:
    lines = b'{"value":1}\n\n{"value":}\n{"key":"k","value":{"b":2}}\n{"value":3,"partition":7}'
    answer = post(http, f"/topics/{topic}", lines, LINES)
    assert (answer["lines"], answer["produced"], answer["failed"]) == (5, 2, 2)
    assert [error["line"] for error in answer["errors"]] == [3, 5]
    assert sum(each["records"] for each in answer["partitions"]) == 2
    found = [record["value"] for number in range(3) for record in web.records(topic, number)]
    assert len(found) == 2
    assert {"b": 2} in found


def test_each_line_can_be_answered(http: httpx.Client, topic: str) -> None:
    headers = {"content-type": LINES, "accept": LINES}
    lines = b'{"value":1}\nnonsense\n{"value":2}\n'
    answer = http.post(f"/topics/{topic}/partitions/1", content=lines, headers=headers)
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert told[0] == {"line": 1, "partition": 1, "offset": 0}
    assert (told[1]["line"], told[1]["error_code"]) == (2, 400)
    assert told[2] == {"line": 3, "partition": 1, "offset": 1}


def test_a_long_stream_of_lines_loses_nothing(web: Web, http: httpx.Client, topic: str) -> None:
    """Far more than the limit of a body, in chunks that do not care where lines end."""
    count = 60_000

    def parts() -> Iterator[bytes]:
        whole = b"".join(b'{"value":{"n":%d,"x":"%s"}}\n' % (n, b"y" * 90) for n in range(count))
        for at in range(0, len(whole), 50_021):
            yield whole[at : at + 50_021]

    answer = post(http, f"/topics/{topic}/partitions/0", b"".join(parts()), LINES)
    assert (answer["lines"], answer["produced"], answer["failed"]) == (count, count, 0)
    chunked = http.post(
        f"/topics/{topic}/partitions/1", content=parts(), headers={"content-type": LINES}
    )
    assert chunked.json()["produced"] == count
    tail = web.records(topic, 1, offset=count - 1)
    assert tail[0]["value"]["n"] == count - 1


def test_a_line_without_end_stops_the_stream(web: Web, topic: str) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"value":1}\n'
        for _ in range(200):
            yield b"x" * 65536

    headers = {"content-type": LINES}
    answer = web.ask("POST", f"/topics/{topic}", content=parts(), headers=headers)
    assert answer.status_code == 413
    assert answer.json()["produced"] == 1
    assert answer.json()["stopped_by"]["error_code"] == 41301


# -- the same request again


def test_a_repeated_idempotency_key_changes_nothing(
    web: Web, http: httpx.Client, topic: str
) -> None:
    body = {"records": [{"value": 1}, {"key": "k", "value": 2}, {"value": 3}]}
    headers = {"idempotency-key": f"order-{topic}"}
    first = http.post(f"/topics/{topic}", json=body, headers=headers)
    again = http.post(f"/topics/{topic}", json=body, headers=headers)
    assert first.status_code == again.status_code == 200, again.text
    assert first.json() == again.json()
    assert sum(len(web.records(topic, number)) for number in range(3)) == 3


def test_an_idempotency_key_is_not_for_two_requests(http: httpx.Client, topic: str) -> None:
    headers = {"idempotency-key": f"once-{topic}"}
    assert http.post(f"/topics/{topic}", json={"records": [{"value": 1}]}, headers=headers)
    other = http.post(f"/topics/{topic}", json={"records": [{"value": 2}]}, headers=headers)
    assert other.status_code == 409
    assert "new key" in other.json()["hint"]
