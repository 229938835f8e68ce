"""Topics, configs, groups, the cluster: what is behind them is Kafka's own."""

import json
from typing import Any

import httpx
import pytest

from headrace.client import Client
from headrace.core.ids import TopicPartition
from tests.support.web import Web


def code(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


def test_a_topic_is_created_changed_and_deleted(http: httpx.Client, topic: str) -> None:
    name = f"{topic}-made"
    body = {"name": name, "partitions": 2, "configs": {"retention.ms": "60000"}}
    made = http.post("/topics", json=body)
    assert made.status_code == 201
    assert made.json()["configs"]["retention.ms"] == "60000"
    assert name in http.get("/topics").json()
    assert code(http.post("/topics", json=body)) == (409, 40904)
    change = {"partitions": 4, "configs": {"retention.ms": None, "cleanup.policy": "compact"}}
    changed = http.patch(f"/topics/{name}", json=change).json()
    assert len(changed["partitions"]) == 4
    assert changed["configs"]["cleanup.policy"] == "compact"
    assert changed["configs"]["retention.ms"] == "604800000"
    assert http.delete(f"/topics/{name}").status_code == 204
    assert code(http.get(f"/topics/{name}")) == (404, 40401)
    assert code(http.delete(f"/topics/{name}")) == (404, 40401)


def test_the_clusters_own_topics_are_not_deleted(web: Web, http: httpx.Client, group: str) -> None:
    own = "/topics/__consumer_offsets"
    commit(web, group, {TopicPartition(group.removeprefix("group-of-"), 0): 1})
    for path in (own, f"{own}/partitions/0/records?before=-1"):
        refused = http.delete(path)
        assert code(refused) == (403, 40304), refused.text
        assert "cluster's own" in refused.json()["message"]
    assert http.get(f"/groups/{group}/offsets").json()


def test_a_dry_run_changes_nothing(http: httpx.Client, topic: str) -> None:
    name = f"{topic}-dry"
    assert http.post("/topics?dry_run=true", json={"name": name}).status_code == 201
    assert name not in http.get("/topics").json()
    http.patch(f"/topics/{topic}?dry_run=true", json={"partitions": 9})
    assert len(http.get(f"/topics/{topic}/partitions").json()) == 3


def test_a_topic_and_its_partitions_as_rest_proxy_shows_them(
    http: httpx.Client, topic: str
) -> None:
    kafka = {"accept": "application/vnd.kafka.v2+json"}
    answer = http.get(f"/topics/{topic}", headers=kafka)
    assert answer.headers["content-type"] == kafka["accept"]
    found = answer.json()
    (broker,) = http.get("/brokers").json()["brokers"]
    replicas = [{"broker": broker, "leader": True, "in_sync": True}]
    partition = {"partition": 1, "leader": broker, "replicas": replicas}
    assert found["name"] == topic
    assert found["partitions"][1] == partition
    assert http.get(f"/topics/{topic}/partitions/1").json() == partition
    assert code(http.get(f"/topics/{topic}/partitions/3")) == (404, 40402)


def test_where_a_partition_begins_and_ends(http: httpx.Client, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0"
    http.post(path, json={"records": [{"value": number} for number in range(10)]})
    assert http.get(f"{path}/offsets").json() == {"beginning_offset": 0, "end_offset": 10}
    assert http.delete(f"{path}/records?before=4").json() == {"beginning_offset": 4}
    assert http.get(f"{path}/offsets").json() == {"beginning_offset": 4, "end_offset": 10}
    assert code(http.delete(f"{path}/records?before=11")) == (416, 41601)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "no/slash"}, 422),
        ({"name": ""}, 422),
        ({"name": "x", "partitions": 0}, 422),
        ({"name": "x", "replication_factor": 9}, 422),
        ({"name": "x", "configs": {"colour": "red"}}, 422),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, 422),
        ({"nam": "x"}, 422),
        ([], 422),
    ],
)
def test_a_topic_that_cannot_be_is_refused(web: Web, body: Any, status: int) -> None:
    answer = web.ask("POST", "/topics", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]


def test_configs_of_topics_and_brokers(http: httpx.Client, topic: str) -> None:
    path = f"/topics/{topic}/configs"
    http.patch(path, json={"configs": {"max.message.bytes": "1000"}})
    by_name = {each["name"]: each for each in http.get(path).json()}
    assert by_name["max.message.bytes"]["value"] == "1000"
    assert by_name["max.message.bytes"]["source"] == "topic_config"
    assert by_name["retention.ms"]["is_default"]
    (broker,) = http.get("/brokers").json()["brokers"]
    path = f"/brokers/{broker}/configs"
    changed = http.patch(path, json={"configs": {"log.cleaner.backoff.ms": "14000"}}).json()
    found = {each["name"]: each for each in changed}
    assert found["log.cleaner.backoff.ms"]["value"] == "14000"
    assert code(http.patch(path, json={"configs": {"node.id": "7"}})) == (422, 422)
    assert code(http.get("/brokers/99")) == (404, 40407)


def test_the_cluster_and_its_brokers(web: Web, http: httpx.Client) -> None:
    cluster = http.get("/cluster").json()
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == web.broker.bootstrap_servers
    assert broker["controller"]
    assert http.get(f"/brokers/{broker['broker']}").json() == broker


# -- groups


def commit(web: Web, group: str, offsets: dict[TopicPartition, int]) -> None:
    with Client(web.broker.bootstrap_servers) as client:
        client.admin.alter_offsets(group, offsets)


def fill(http: httpx.Client, topic: str, count: int) -> None:
    records = [{"value": number, "partition": number % 3} for number in range(count)]
    assert http.post(f"/topics/{topic}", json={"records": records}).status_code == 200


def test_a_group_is_listed_described_and_deleted(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    fill(http, topic, 30)
    commit(web, group, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 10})
    assert group in [each["group"] for each in http.get("/groups").json()]
    found = http.get(f"/groups/{group}").json()
    assert (found["state"], found["members"]) == ("Empty", [])
    lag = {each["partition"]: each["lag"] for each in found["lag"]}
    assert (lag[0], lag[1]) == (6, 0)
    assert http.get(f"/groups/{group}/lag").json() == found["lag"]
    assert http.delete(f"/groups/{group}").status_code == 204
    assert code(http.get(f"/groups/{group}")) == (404, 40405)
    assert code(http.delete(f"/groups/{group}")) == (404, 40405)


def test_offsets_of_a_group_without_members(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 9)
    offsets = [{"topic": topic, "partition": 2, "offset": 2, "metadata": "m"}]
    assert http.post(f"/groups/{group}/offsets", json={"offsets": offsets}).status_code == 204
    assert http.get(f"/groups/{group}/offsets").json() == {"offsets": offsets}


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 10),
        ({"offset": 3}, 3),
        ({"offset": 300}, 10),
        ({"shift_by": -2}, 3),
        ({"shift_by": 99}, 10),
        ({"timestamp": 0}, 0),
        ({"back_ms": 0}, 10),
    ],
)
def test_a_group_is_set_to_another_place(
    web: Web, http: httpx.Client, topic: str, group: str, way: dict[str, Any], expected: int
) -> None:
    fill(http, topic, 30)
    commit(web, group, {TopicPartition(topic, 0): 5})
    planned = http.post(f"/groups/{group}/reset", json={**way, "dry_run": True}).json()
    moved = {"topic": topic, "partition": 0, "before": 5, "after": expected}
    assert planned == [moved]
    (unmoved,) = http.get(f"/groups/{group}/offsets").json()["offsets"]
    assert unmoved["offset"] == 5
    assert http.post(f"/groups/{group}/reset", json=way).json() == [moved]
    (found,) = http.get(f"/groups/{group}/offsets").json()["offsets"]
    assert found["offset"] == expected


def test_a_reset_can_name_topics_and_partitions(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 9)
    moved = http.post(f"/groups/{group}/reset", json={"topics": [topic], "to": "latest"}).json()
    assert [each["after"] for each in moved] == [3, 3, 3]
    one = {"partitions": [{"topic": topic, "partition": 1}], "to": "earliest"}
    (found,) = http.post(f"/groups/{group}/reset", json=one).json()
    assert (found["before"], found["after"]) == (3, 0)
    assert code(http.post(f"/groups/{group}-none/reset", json={"to": "latest"})) == (404, 40405)
    assert code(http.post(f"/groups/{group}/reset", json={})) == (422, 422)


def test_a_group_at_work_is_not_reset(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 9)
    made = http.post(f"/consumers/{group}", json={"auto.offset.reset": "earliest"}).json()
    http.post(f"{made['base_uri']}/subscription", json={"topics": [topic]})
    for _ in range(50):
        http.get(f"{made['base_uri']}/records?timeout=100")
        if len(http.get(f"/groups/{group}").json()["members"]) == 1:
            break
    reset = {"topics": [topic], "to": "earliest"}
    refused = http.post(f"/groups/{group}/reset", json=reset)
    assert code(refused) == (409, 40905)
    assert "stop" in refused.json()["hint"]
    assert code(http.delete(f"/groups/{group}")) == (409, 40905)
    assert http.delete(made["base_uri"]).status_code == 204
    assert http.post(f"/groups/{group}/reset", json=reset).status_code == 200


# -- what the API says about itself


def test_health_and_metrics(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}
    text = http.get("/metrics").text
    assert 'headrace_http_requests_total{method="GET",path="/healthz",status="200"}' in text


def test_the_document_knows_every_route(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/consumers/{group}/instances/{instance}/records" in document["paths"]
    assert json.dumps(document).count("$ref") > 20
    answer = http.put("/topics")
    assert code(answer) == (405, 405)
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert code(http.get("/nowhere")) == (404, 404)
    assert http.head("/topics").status_code == 200
