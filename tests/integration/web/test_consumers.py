"""Consumer instances, as users of REST Proxy v2 know them."""

import time
from typing import Any

import httpx
import pytest

from headrace.client import Client, CommittedOffset, ProducerSettings
from headrace.core.ids import TopicPartition
from tests.support.web import Web, local_web

KAFKA = {"content-type": "application/vnd.kafka.v2+json"}


class Consumer:
    """A client that does what the tutorials of REST Proxy do."""

    def __init__(self, http: httpx.Client, group: str, **config: str) -> None:
        self.http = http
        usual = {"format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": "1"}
        config = {**usual, **config}
        answer = http.post(f"/consumers/{group}", json=config, headers=KAFKA)
        assert answer.status_code == 200, answer.text
        self.made = answer.json()
        self.base = self.made["base_uri"]

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.http.post(self.base + path, json=body, headers=KAFKA)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(self.base + path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def subscribe(self, *topics: str) -> None:
        assert self.post("/subscription", {"topics": topics}).status_code == 204

    def read(self, count: int, seconds: float = 20) -> list[dict[str, Any]]:
        """At least so many records, as they come."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < deadline:
            found += self.get("/records", timeout=500)
        return found

    def close(self) -> None:
        assert self.http.delete(self.base).status_code == 204


def produce(web: Web, topic: str, count: int, first: int = 0) -> None:
    with Client(web.broker.bootstrap_servers) as client, client.producer() as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % 3)
        producer.flush()


def values(records: list[dict[str, Any]]) -> list[int]:
    return sorted(record["value"] for record in records)


def committed(web: Web, group: str) -> dict[TopicPartition, CommittedOffset]:
    with Client(web.broker.bootstrap_servers) as client:
        return client.admin.committed_offsets(group)


def test_an_instance_subscribes_reads_commits_and_goes(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    produce(web, topic, 12)
    consumer = Consumer(http, group, **{"auto.commit.enable": "false"})
    assert consumer.made["base_uri"].endswith(consumer.made["instance_id"])
    consumer.subscribe(topic)
    assert consumer.get("/subscription")["topics"] == [topic]
    found = consumer.read(12)
    assert values(found) == list(range(12))
    assert {"topic", "key", "value", "partition", "offset"} <= set(found[0])
    assert consumer.get("/offsets")["offsets"] == []
    assert consumer.post("/offsets").status_code == 204
    offsets = consumer.get("/offsets")["offsets"]
    assert [(each["partition"], each["offset"]) for each in offsets] == [(0, 4), (1, 4), (2, 4)]
    consumer.close()
    assert committed(web, group)[TopicPartition(topic, 1)].offset == 4
    produce(web, topic, 3, first=100)
    after = Consumer(http, group)
    after.subscribe(topic)
    assert values(after.read(3)) == [100, 101, 102]
    after.close()


def test_a_committed_offset_is_that_of_the_last_record_processed(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    """As in REST Proxy: the next record is what the group goes on with."""
    produce(web, topic, 12)
    consumer = Consumer(http, group)
    consumer.subscribe(topic)
    consumer.read(12)
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 1, "metadata": "half"}]}
    assert consumer.post("/offsets", body).status_code == 204
    assert committed(web, group)[TopicPartition(topic, 0)] == CommittedOffset(2, metadata="half")
    consumer.close()


def test_reading_again_commits_what_was_read_before(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    produce(web, topic, 9)
    consumer = Consumer(http, group)
    consumer.subscribe(topic)
    consumer.read(9)
    consumer.get("/records", timeout=1)
    assert sum(each.offset for each in committed(web, group).values()) == 9
    consumer.close()


def test_two_instances_share_a_topic_and_one_takes_over(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    first, second = Consumer(http, group), Consumer(http, group)
    first.subscribe(topic)
    second.subscribe(topic)

    def shares() -> list[int]:
        both = (first, second)
        for each in both:
            each.get("/records", timeout=50)
        return sorted(len(each.get("/assignments")["partitions"]) for each in both)

    wait_until(lambda: shares() == [1, 2])
    produce(web, topic, 30)
    got = [first.get("/records", timeout=2000), second.get("/records", timeout=2000)]
    assert all(got)
    first.close()
    wait_until(lambda: len(second.get("/assignments")["partitions"]) == 3)
    produce(web, topic, 3, first=500)
    seen: set[int] = set()
    deadline = time.monotonic() + 20
    while not {500, 501, 502} <= seen and time.monotonic() < deadline:
        seen |= set(values(second.get("/records", timeout=500)))
    assert {500, 501, 502} <= seen
    second.close()


def wait_until(ready: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def test_partitions_can_be_assigned_by_hand(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    produce(web, topic, 12)
    consumer = Consumer(http, group)
    body = {"partitions": [{"topic": topic, "partition": 1}]}
    assert consumer.post("/assignments", body).status_code == 204
    assert consumer.get("/assignments") == body
    assert values(consumer.read(4)) == [1, 4, 7, 10]
    at = [{"topic": topic, "partition": 1, "offset": 2}]
    assert consumer.post("/positions", {"offsets": at}).status_code == 204
    assert values(consumer.read(2)) == [7, 10]
    assert consumer.post("/positions/beginning", body).status_code == 204
    assert values(consumer.read(4)) == [1, 4, 7, 10]
    assert consumer.post("/positions/end", body).status_code == 204
    produce(web, topic, 3, first=30)
    assert values(consumer.read(1)) == [31]
    (position,) = consumer.get("/positions")["offsets"]
    assert (position["partition"], position["offset"]) == (1, 5)
    consumer.close()


def test_topics_by_a_pattern(web: Web, http: httpx.Client, topic: str, group: str) -> None:
    produce(web, topic, 3)
    consumer = Consumer(http, group)
    assert consumer.post("/subscription", {"topic_pattern": f"{topic[:-1]}.*"}).status_code == 204
    assert values(consumer.read(3)) == [0, 1, 2]
    consumer.close()


@pytest.mark.parametrize(
    ("config", "status", "code"),
    [
        ({"format": "avro"}, 422, 42204),
        ({"format": "xml"}, 422, 42204),
        ({"auto.offset.reset": "middle"}, 422, 42204),
        ({"fetch.min.bytes": "many"}, 422, 42204),
        ({"fetch.min.bytes": "-10"}, 422, 42204),
    ],
)
def test_a_bad_config_is_refused(
    web: Web, group: str, config: dict[str, str], status: int, code: int
) -> None:
    answer = web.ask("POST", f"/consumers/{group}", json=config)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)


def test_errors_have_the_codes_of_rest_proxy(http: httpx.Client, topic: str, group: str) -> None:
    consumer = Consumer(http, group, name="mine")
    base = consumer.base

    def code(method: str, address: str, body: Any = None) -> int:
        answer = http.request(method, address, json=body)
        found: int = answer.json()["error_code"]
        assert answer.status_code == (found if found < 1000 else found // 100)
        return found

    assert code("POST", f"/consumers/{group}", {"name": "mine"}) == 40902
    assert code("GET", f"/consumers/{group}/instances/other/records") == 40403
    assert code("DELETE", f"/consumers/{group}/instances/other") == 40403
    assert code("GET", f"{base}/records") == 40903
    both = {"topics": [topic], "topic_pattern": topic}
    assert code("POST", f"{base}/subscription", both) == 40903
    assert code("POST", f"{base}/subscription", {}) == 40903
    consumer.subscribe(topic)
    inside = {"partitions": [{"topic": topic, "partition": 0}]}
    assert code("POST", f"{base}/assignments", inside) == 40903
    elsewhere = {"offsets": [{"topic": "nowhere", "partition": 0, "offset": 0}]}
    assert code("POST", f"{base}/positions", elsewhere) == 40903
    consumer.close()


def test_an_instance_that_is_not_used_expires() -> None:
    settings = {"http.consumer.instance.timeout.ms": "1500"}
    with local_web(**settings) as web, web.client() as http:
        web.broker.create_topic("orders", partitions=3)
        consumer = Consumer(http, "forgetful")
        consumer.subscribe("orders")
        consumer.read(0)

        def members() -> int:
            return len(http.get("/groups/forgetful").json().get("members", ()))

        wait_until(lambda: members() == 1)
        wait_until(lambda: members() == 0)
        assert http.get(f"{consumer.base}/records").json()["error_code"] == 40403


def test_there_are_only_so_many_instances() -> None:
    with local_web(**{"http.max.consumer.instances": "2"}) as web, web.client() as http:
        one, two = Consumer(http, "a"), Consumer(http, "b")
        refused = http.post("/consumers/c", json={})
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42901)
        one.close()
        Consumer(http, "c").close()
        two.close()


def test_a_client_that_goes_away_takes_no_records_with_it(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    """A long poll whose client has gone must not swallow what comes next."""
    consumer = Consumer(http, group)
    assert consumer.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    consumer.get("/records", timeout=1)
    path = httpx.URL(consumer.base).path
    with web.connect() as gone:
        gone.sendall(
            f"GET {path}/records?timeout=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        time.sleep(0.2)
    produce(web, topic, 3)
    assert values(consumer.read(1)) == [0]
    consumer.close()


def test_an_answer_that_nobody_received_is_given_again(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    """The client dies while an answer is on its way that no buffer between can hold."""
    large = web.broker.create_topic(f"{topic}-large", configs={"max.message.bytes": 30_000_000})
    settings = ProducerSettings(request_bytes_max=30_000_000)
    with Client(web.broker.bootstrap_servers) as client, client.producer(settings) as producer:
        producer.send(large, b'"%s"' % (b"x" * 16_000_000)).result()
    consumer = Consumer(http, group)
    assert consumer.post("/assignments", {"partitions": [{"topic": large, "partition": 0}]})
    path = httpx.URL(consumer.base).path
    with web.connect() as gone:
        query = "records?timeout=20000"
        gone.sendall(f"GET {path}/{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert gone.recv(1000)
    (found,) = consumer.read(1)
    assert (found["offset"], len(found["value"])) == (0, 16_000_000)
    consumer.close()


def test_closing_an_instance_ends_its_long_poll(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    consumer = Consumer(http, group)
    assert consumer.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    path = httpx.URL(consumer.base).path
    with web.connect() as waiting:
        waiting.sendall(
            f"GET {path}/records?timeout=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        time.sleep(0.1)
        started = time.monotonic()
        consumer.close()
        assert b" 404 " in waiting.recv(4096)
    assert time.monotonic() - started < 10


def test_a_group_may_have_a_slash_in_its_name(web: Web, http: httpx.Client, topic: str) -> None:
    produce(web, topic, 3)
    group = f"team/{topic}/100%"
    path = "team%2F" + topic + "%2F100%25"
    consumer = Consumer(http, path, name="a b")
    assert consumer.base.endswith(f"/consumers/{path}/instances/a%20b")
    consumer.subscribe(topic)
    assert values(consumer.read(3)) == [0, 1, 2]
    assert consumer.post("/offsets").status_code == 204
    assert http.get(f"/groups/{path}").json()["group"] == group
    consumer.close()
    assert len(committed(web, group)) == 3
