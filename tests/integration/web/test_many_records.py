"""Requests of very many records: bounded, and in slices that let everybody else have a turn."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.client import NewTopic
from headrace.gateway import Gateway, OutRecord, Produced
from headrace.web.produce import KEYED_RECORDS_MAX, RECORDS_MAX, SLICE_RECORDS
from headrace.web.produce_stream import SLICE_LINES
from headrace.web.server import serve
from headrace.web.settings import WebSettings
from tests.support.gateways import gateway_of
from tests.support.metadata import InlineExecutor
from tests.support.web import Web

JSON = {"content-type": "application/json"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_of("local", tmp_path) as found:
        await found.admin.create_topics([NewTopic("orders", 1)])
        yield found


def ends(web: Web, topic: str) -> list[int]:
    path = f"/topics/{topic}/partitions"
    return [web.ask("GET", f"{path}/{n}/offsets").json()["end_offset"] for n in range(3)]


def test_too_many_records_are_refused(web: Web, http: httpx.Client, topic: str) -> None:
    for limit, more in ((RECORDS_MAX, {}), (KEYED_RECORDS_MAX, {"idempotency-key": topic})):
        body = b'{"records":[' + b",".join([b"{}"] * (limit + 1)) + b"]}"
        answer = http.post(f"/topics/{topic}", content=body, headers={**JSON, **more})
        assert (answer.status_code, answer.json()["error_code"]) == (413, 41304)
        assert "application/x-ndjson" in answer.json()["hint"]
    assert ends(web, topic) == [0, 0, 0]


def test_what_is_in_records_does_not_count(http: httpx.Client, topic: str) -> None:
    body: Any = {"records": [{"value": [{}] * (RECORDS_MAX + 1)}]}
    assert http.post(f"/topics/{topic}", json=body).status_code == 200


def test_many_records_keep_their_order(web: Web, http: httpx.Client, topic: str) -> None:
    count = 3 * SLICE_RECORDS + 7
    body = {"records": [{"value": number} for number in range(count)]}
    answer = http.post(f"/topics/{topic}/partitions/1", json=body)
    assert answer.status_code == 200
    assert answer.json()["value_schema_id"] is None
    assert [each["offset"] for each in answer.json()["offsets"]] == list(range(count))
    found = web.records(topic, 1, offset=0, count=count, max_bytes=10_000_000)
    assert [each["value"] for each in found] == list(range(count))
    body["records"].insert(SLICE_RECORDS, {"partition": 99})
    spread = http.post(f"/topics/{topic}", json=body).json()["offsets"]
    assert [each["error_code"] for each in spread].count(50002) == 1
    assert spread[SLICE_RECORDS]["error_code"] == 50002


def test_one_bad_record_behind_many_good_ones_writes_nothing(
    web: Web, http: httpx.Client, topic: str
) -> None:
    records: list[dict[str, Any]] = [{"value": 1} for _ in range(2 * SLICE_RECORDS)]
    records.append({"value": "?", "value_format": "binary"})
    answer = http.post(f"/topics/{topic}", json={"records": records})
    assert answer.status_code == 400
    assert f"record {2 * SLICE_RECORDS}:" in answer.json()["message"]
    assert ends(web, topic) == [0, 0, 0]


@pytest.mark.parametrize(("kind", "most"), [("json", SLICE_RECORDS), ("x-ndjson", SLICE_LINES)])
async def test_no_slice_is_large(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    sizes: list[int] = []
    produce = gateway.produce

    async def noted(topic: str, records: Sequence[OutRecord], **more: Any) -> list[Produced]:
        sizes.append(len(records))
        return await produce(topic, records, **more)

    monkeypatch.setattr(gateway, "produce", noted)
    count = 20_000
    whole = json.dumps({"records": [{}] * count})
    body = whole if kind == "json" else "{}\n" * count
    server = await serve(gateway, WebSettings(port=0), executor=InlineExecutor())
    try:
        async with httpx.AsyncClient(timeout=30) as http:
            answer = await http.post(
                f"http://127.0.0.1:{server.port}/topics/orders",
                content=body,
                headers={"content-type": f"application/{kind}"},
            )
    finally:
        await server.close()
    assert answer.status_code == 200
    assert sum(sizes) == count
    assert max(sizes) <= most
