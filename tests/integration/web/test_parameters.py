"""Every optional part of a request changes the answer: no parameter is taken and without effect."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from types import UnionType
from typing import Any, Union, get_args, get_origin

import httpx
import msgspec
import pytest

from headrace.client import NewTopic
from headrace.protocol.api_keys import ApiKey
from headrace.testing import Broker
from headrace.testing.plugin import topic_name
from headrace.web.app import OPERATIONS
from headrace.web.server import serve
from headrace.web.settings import WebSettings
from tests.support.config_effects import effect_of
from tests.support.gateways import remote_gateway
from tests.support.holding_proxy import HOST, HoldingProxy
from tests.support.metadata import InlineExecutor
from tests.support.processes import free_port
from tests.support.web import Web, local_web

TIMES = (1000, 2000, 3000)
TWO = "two"


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with local_web() as found:
        yield found


@pytest.fixture
def http(web: Web) -> Iterator[httpx.Client]:
    with web.client() as client:
        yield client


@pytest.fixture
def topic(web: Web) -> str:
    """Two partitions; in each of them three records, "a0" to "a2" and "b0" to "b2"."""
    name = web.broker.create_topic(topic_name("parameters"), partitions=2)
    for partition, letter in enumerate("ab"):
        records = [{"value": f"{letter}{n}", "timestamp": at} for n, at in enumerate(TIMES)]
        path = f"/topics/{name}/partitions/{partition}"
        assert web.ask("POST", path, json={"records": records}).status_code == 200
    return name


def values(records: list[dict[str, Any]]) -> list[Any]:
    return [record["value"] for record in records]


# -- produce


@effect_of("ProduceQuery.acks")
def test_acks(http: httpx.Client, topic: str) -> None:
    def offset(query: str) -> int:
        body = {"records": [{"value": 1}]}
        answer = http.post(f"/topics/{topic}/partitions/0{query}", json=body)
        found: int = answer.json()["offsets"][0]["offset"]
        return found

    assert (offset(""), offset("?acks=0")) == (3, -1)


@effect_of("ProduceQuery.timeout_ms")
async def test_timeout_ms() -> None:
    """Over a listener whose broker takes the records and does not answer."""

    def hold(proxy: HoldingProxy, api_key: int) -> bool:
        if api_key == ApiKey.PRODUCE:
            proxy.hold()
        return True

    port = free_port(HOST)
    settings = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
    with Broker(settings=settings) as broker:
        proxy = HoldingProxy(int(broker.bootstrap_servers.rpartition(":")[2]), hold)
        proxy.port = port
        async with proxy, remote_gateway(f"{HOST}:{port}") as gateway:
            await gateway.admin.create_topics([NewTopic("orders", 1)])
            server = await serve(gateway, WebSettings(port=0), executor=InlineExecutor())

            async def seconds(timeout_ms: int) -> float:
                started = time.monotonic()
                url = f"http://{HOST}:{server.port}/topics/orders?timeout_ms={timeout_ms}"
                async with httpx.AsyncClient(timeout=60) as client:
                    answer = await client.post(url, json={"records": [{"value": 1}]})
                (failed,) = answer.json()["offsets"]
                assert failed["error_code"] == 50003
                proxy.release()
                return time.monotonic() - started

            assert await seconds(3000) > 3
            assert await seconds(1) < 30  # which is how long it waits otherwise, and a little more
            await server.close()


@effect_of(
    "ProduceBody.key_schema",
    "ProduceBody.key_schema_id",
    "ProduceBody.value_schema",
    "ProduceBody.value_schema_id",
)
@pytest.mark.parametrize("name", ["key_schema", "key_schema_id", "value_schema", "value_schema_id"])
def test_schemas(http: httpx.Client, topic: str, name: str) -> None:
    body: dict[str, Any] = {"records": [{"value": 1}]}
    assert http.post(f"/topics/{topic}", json=body).status_code == 200
    body[name] = 1 if name.endswith("id") else "{}"
    assert http.post(f"/topics/{topic}", json=body).json()["error_code"] == 42205


@effect_of("Idempotency-Key")
def test_idempotency_key(http: httpx.Client, topic: str) -> None:
    def offset(**headers: str) -> int:
        body = {"records": [{"value": 1}]}
        answer = http.post(f"/topics/{topic}/partitions/0", json=body, headers=headers)
        found: int = answer.json()["offsets"][0]["offset"]
        return found

    key = {"idempotency-key": topic}
    assert [offset(), offset(), offset(**key), offset(**key)] == [3, 4, 5, 5]


@effect_of(
    *(f"RecordIn.{name}" for name in ("key", "value", "partition", "timestamp", "headers")),
    *("RecordIn.key_format", "RecordIn.value_format", "RecordHeader.value", "RecordHeader.format"),
)
@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"key": "k"}, {"key": "k"}),
        ({"value": 5}, {"value": 5}),
        ({"partition": 1}, {"partition": 1}),
        ({"timestamp": 77}, {"timestamp": 77}),
        ({"headers": [{"name": "n"}]}, {"headers": [{"name": "n"}]}),
        ({"headers": [{"name": "n", "value": "v"}]}, {"headers": [{"name": "n", "value": "v"}]}),
        (
            {"headers": [{"name": "n", "value": "dg==", "format": "binary"}]},
            {"headers": [{"name": "n", "value": "v"}]},
        ),
        ({"key": "aw==", "key_format": "binary"}, {"key": "k"}),
        ({"value": "NQ==", "value_format": "binary"}, {"value": 5}),
    ],
)
def test_records(web: Web, http: httpx.Client, record: Any, shown: dict[str, Any]) -> None:
    name = web.broker.create_topic(topic_name("records"), partitions=2)
    plain = {"partition": 0, **record}
    http.post(f"/topics/{name}", json={"records": [plain]})
    number = plain["partition"]
    (found,) = web.records(name, number)
    usual = {"key": None, "value": None, "partition": 0, "headers": None}
    assert {field: found.get(field) for field in shown} == shown
    assert shown != {field: usual.get(field) for field in shown}


# -- read and stream


@effect_of(*(f"ReadQuery.{name}" for name in ("offset", "timestamp", "count", "max_bytes")))
@pytest.mark.parametrize(
    ("query", "read"),
    [
        ({}, ["a0", "a1", "a2"]),
        ({"offset": 1}, ["a1", "a2"]),
        ({"timestamp": 2500}, ["a2"]),
        ({"count": 2}, ["a0", "a1"]),
        ({"max_bytes": 5}, ["a0"]),
    ],
)
def test_reads(web: Web, topic: str, query: dict[str, int], read: list[str]) -> None:
    assert values(web.records(topic, **query)) == read


@effect_of("ReadQuery.timeout")
def test_read_timeout(web: Web, topic: str) -> None:
    started = time.monotonic()
    assert web.records(topic, offset=3, timeout=3000) == []
    waited = time.monotonic() - started
    assert waited > 2.9
    started = time.monotonic()
    assert web.records(topic, offset=3) == []
    assert time.monotonic() - started < waited


@effect_of(
    *(f"StreamQuery.{name}" for name in ("from", "partition", "offset", "timestamp")),
    "Last-Event-ID",
)
@pytest.mark.parametrize(
    ("query", "headers", "first"),
    [
        ("", {}, {"new"}),
        ("?from=beginning", {}, {"a0", "a1", "a2", "b0", "b1", "b2", "new"}),
        ("?partition=1&from=beginning", {}, {"b0", "b1", "b2"}),
        ("?partition=1&offset=2", {}, {"b2"}),
        ("?timestamp=2500", {}, {"a2", "b2", "new"}),
        ("", {"last-event-id": "0:3,1:1"}, {"b1", "b2", "new"}),
    ],
)
def test_streams(
    web: Web, http: httpx.Client, topic: str, query: str, headers: dict[str, str], first: set[str]
) -> None:
    wanted = {"accept": "application/x-ndjson", **headers}
    with http.stream("GET", f"/topics/{topic}/stream{query}", headers=wanted) as answer:
        new = {"records": [{"value": "new", "partition": 0}]}
        web.ask("POST", f"/topics/{topic}", json=new)
        lines = (line for line in answer.iter_lines() if line)
        assert {json.loads(line)["value"] for line in islice(lines, len(first))} == first


# -- consumers


def read_with(
    http: httpx.Client, topic: str, config: dict[str, Any], query: str = ""
) -> tuple[list[Any], float]:
    """What a new instance reads first, and in how many seconds."""
    base = http.post(f"/consumers/of-{topic}", json=config).json()["base_uri"]
    where = {"partitions": [{"topic": topic, "partition": 0}]}
    http.post(f"{base}/assignments", json=where)
    started = time.monotonic()
    answer = http.get(f"{base}/records{query}")
    seconds = time.monotonic() - started
    assert answer.status_code == 200, answer.text
    http.delete(base)
    return values(answer.json()), seconds


EARLIEST = {"auto.offset.reset": "earliest"}


@effect_of("NewInstance.format", "NewInstance.auto.offset.reset", "RecordsQuery.max_bytes")
@pytest.mark.parametrize(
    ("config", "query", "read"),
    [
        ({}, "", []),
        (EARLIEST, "", ["ImEwIg==", "ImExIg==", "ImEyIg=="]),
        ({**EARLIEST, "format": "json"}, "", ["a0", "a1", "a2"]),
        ({**EARLIEST, "format": "json"}, "?max_bytes=5", ["a0"]),
    ],
)
def test_what_an_instance_reads(
    http: httpx.Client, topic: str, config: dict[str, Any], query: str, read: list[str]
) -> None:
    assert read_with(http, topic, config, query)[0] == read


@effect_of(
    *("NewInstance.fetch.min.bytes", "NewInstance.responseMinBytes", "RecordsQuery.timeout"),
    *("NewInstance.consumer.request.timeout.ms", "NewInstance.requestWaitMs"),
)
@pytest.mark.parametrize("wait", ["consumer.request.timeout.ms", "requestWaitMs"])
@pytest.mark.parametrize("enough", ["fetch.min.bytes", "responseMinBytes"])
def test_how_long_an_instance_reads(http: httpx.Client, topic: str, wait: str, enough: str) -> None:
    config = {**EARLIEST, "auto.commit.enable": "false", wait: 2000}
    assert read_with(http, topic, config)[1] > 1.9
    assert read_with(http, topic, {**config, wait: 30_000}, "?timeout=100")[1] < 25
    assert read_with(http, topic, {**config, wait: 30_000, enough: 1})[1] < 25


@effect_of("NewInstance.id", "NewInstance.name")
def test_names_of_instances(http: httpx.Client, topic: str) -> None:
    def name(config: dict[str, str]) -> str:
        made = http.post(f"/consumers/of-{topic}", json=config).json()
        http.delete(made["base_uri"])
        found: str = made["instance_id"]
        return found

    assert name({"name": "one"}) == "one"
    assert name({"name": "one", "id": TWO}) == TWO
    assert name({}) not in ("one", TWO)


@effect_of("NewInstance.auto.commit.enable")
@pytest.mark.parametrize(("enable", "committed"), [(None, 3), ("true", 3), ("false", None)])
def test_auto_commit(
    http: httpx.Client, topic: str, enable: str | None, committed: int | None
) -> None:
    read_with(http, topic, {**EARLIEST, "auto.commit.enable": enable})
    offsets = http.get(f"/groups/of-{topic}/offsets").json()
    found = [each["offset"] for each in offsets["offsets"]] if "offsets" in offsets else []
    assert found == ([] if committed is None else [committed])


@effect_of("Subscription.topics", "Subscription.topic_pattern")
def test_subscriptions(http: httpx.Client, topic: str) -> None:
    base = http.post(f"/consumers/of-{topic}", json={}).json()["base_uri"]
    for body in ({"topics": [topic]}, {"topic_pattern": f"{topic[:-1]}.?.?"}):
        assert http.get(f"{base}/subscription").json()["topics"] == []
        assert http.post(f"{base}/subscription", json=body).status_code == 204
        assert topic in http.get(f"{base}/subscription").json()["topics"]
        assert http.delete(f"{base}/subscription").status_code == 204
    http.delete(base)


@effect_of("OffsetsToCommit.offsets", "PartitionOffset.metadata", "Partitions.partitions")
def test_offsets(http: httpx.Client, topic: str) -> None:
    config = {**EARLIEST, "auto.commit.enable": "false", "fetch.min.bytes": 1}
    base = http.post(f"/consumers/of-{topic}", json=config).json()["base_uri"]
    where = {"topic": topic, "partition": 0}
    http.post(f"{base}/assignments", json={"partitions": [where]})
    http.get(f"{base}/records?timeout=20000")

    def committed(body: Any) -> tuple[int, str]:
        assert http.post(f"{base}/offsets", json=body).status_code == 204
        (found,) = http.get(f"{base}/offsets").json()["offsets"]
        return found["offset"], found["metadata"]

    assert committed({}) == (3, "")
    assert committed({"offsets": [{**where, "offset": 0}]}) == (1, "")
    assert committed({"offsets": [{**where, "offset": 0, "metadata": "half"}]}) == (1, "half")
    other = {"partitions": [{"topic": topic, "partition": 1}]}
    assert http.request("GET", f"{base}/offsets", json=other).json() == {"offsets": []}
    http.delete(base)


@effect_of(
    *(f"Reset.{name}" for name in ("topics", "partitions", "to", "offset", "timestamp")),
    *("Reset.back_ms", "Reset.shift_by", "Reset.dry_run"),
)
@pytest.mark.parametrize(
    ("reset", "after"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [3, 3]),
        ({"to": "latest", "dry_run": True}, [2, 2]),
        ({"to": "latest", "topics": []}, [2, 2]),
        ({"to": "latest", "partitions": [1]}, [2, 3]),
        ({"offset": 1}, [1, 1]),
        ({"timestamp": 500}, [0, 0]),
        ({"back_ms": 1000}, [3, 3]),
        ({"shift_by": -1}, [1, 1]),
    ],
)
def test_resets(http: httpx.Client, topic: str, reset: dict[str, Any], after: list[int]) -> None:
    group = f"/groups/of-{topic}"
    where = [{"topic": topic, "partition": partition} for partition in (0, 1)]
    begun = {"offsets": [{**each, "offset": 2} for each in where]}
    assert http.post(f"{group}/offsets", json=begun).status_code == 204
    if "partitions" in reset:
        reset = {**reset, "partitions": [where[number] for number in reset["partitions"]]}
    answer = http.post(f"{group}/reset", json=reset)
    assert answer.status_code == 200 or reset.get("topics") == []
    found = http.get(f"{group}/offsets").json()
    assert [each["offset"] for each in found["offsets"]] == after


# -- topics and configs


@effect_of("TopicsQuery.internal")
def test_internal(http: httpx.Client, topic: str) -> None:
    read_with(http, topic, EARLIEST)
    assert "__consumer_offsets" not in http.get("/topics").json()
    assert "__consumer_offsets" in http.get("/topics?internal=true").json()


@effect_of("TopicIn.partitions", "TopicIn.configs", "TopicIn.replication_factor")
def test_new_topics(http: httpx.Client) -> None:
    def made(**more: Any) -> dict[str, Any]:
        body = {"name": topic_name("made"), **more}
        found: dict[str, Any] = http.post("/topics", json=body).json()
        return found

    assert [len(made()["partitions"]), len(made(partitions=4)["partitions"])] == [1, 4]
    configs = {"retention.ms": "77"}
    assert made()["configs"]["retention.ms"] != "77"
    assert made(configs=configs)["configs"]["retention.ms"] == "77"
    assert made(replication_factor=2)["kafka_error"] == "INVALID_REPLICATION_FACTOR"


@effect_of("TopicChange.partitions", "TopicChange.configs", "ChangeQuery.dry_run")
def test_changes_of_topics(http: httpx.Client, topic: str) -> None:
    def changed(query: str = "", **body: Any) -> tuple[int, str]:
        assert http.patch(f"/topics/{topic}{query}", json=body).status_code == 200
        found = http.get(f"/topics/{topic}").json()
        return len(found["partitions"]), found["configs"]["retention.ms"]

    before = changed()
    both: dict[str, Any] = {"partitions": 3, "configs": {"retention.ms": "77"}}
    assert changed("?dry_run=true", **both) == before
    assert changed(partitions=3) == (3, before[1])
    assert changed(configs={"retention.ms": "77"}) == (3, "77")
    dry = topic_name("dry")
    assert http.post("/topics?dry_run=true", json={"name": dry}).status_code == 201
    assert dry not in http.get("/topics").json()
    for path in (f"/topics/{topic}/configs", "/brokers/0/configs"):
        seen = http.get(path).json()
        name = "retention.ms" if "topics" in path else "log.retention.ms"
        body = {"configs": {name: "88"}}
        assert http.patch(f"{path}?dry_run=true", json=body).status_code == 200
        assert http.get(path).json() == seen


# -- no parameter without one of these


def test_every_optional_part_of_a_request_has_a_test_of_its_effect() -> None:
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    shown = {name for test in tests for name in getattr(test, "shows", ())}
    documented = {header for operation in OPERATIONS for header in operation.headers}
    for operation in OPERATIONS:
        documented |= _optional(operation.query) | _optional(operation.body)
    # An object that must have one thing is the thing; one such body may be left out as a whole.
    assert documented - shown == set()
    assert shown - documented == {"Partitions.partitions"}


def _optional(kind: Any) -> set[str]:
    """Fields that may be left out, of a struct and of those in it."""
    if not isinstance(kind, type):
        inner = [each for each in get_args(kind) if get_origin(kind) is not None]
        return set().union(*map(_optional, inner)) if inner else set()
    if get_origin(kind) in (Union, UnionType) or not issubclass(kind, msgspec.Struct):
        return set()
    found = {
        f"{kind.__name__}.{field.encode_name}"
        for field in msgspec.structs.fields(kind)
        if not field.required
    }
    return found.union(*(_optional(field.type) for field in msgspec.structs.fields(kind)))
