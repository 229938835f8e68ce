"""What a producer is told of records that were not written, by the code of the failure."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.client import NewTopic
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.gateway import Gateway, NotAttempted, OutRecord, Produced
from headrace.web.server import serve
from headrace.web.settings import WebSettings
from tests.support.gateways import gateway_of
from tests.support.metadata import InlineExecutor


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_of("local", tmp_path) as found:
        await found.admin.create_topics([NewTopic("orders", 1)])
        yield found


async def answer_to(gateway: Gateway) -> httpx.Response:
    server = await serve(gateway, WebSettings(port=0), executor=InlineExecutor())
    try:
        async with httpx.AsyncClient(timeout=30) as http:
            url = f"http://127.0.0.1:{server.port}/topics/orders"
            return await http.post(url, json={"records": [{"value": 1}, {"value": 2}]})
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), 200, 50003),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), 200, 50003),
        (NotAttempted(0), 200, 50003),
        (ApiError(ErrorCode.INVALID_RECORD), 200, 50002),
        (ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 200, 50002),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 403, 40301),
    ],
)
async def test_a_record_says_whether_it_may_be_sent_again(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    error: HeadraceError,
    status: int,
    code: int,
) -> None:
    async def failing(_: str, records: Sequence[OutRecord], **__: Any) -> list[Produced]:
        return [Produced(0, 7), *(Produced(0, -1, error) for _ in records[1:])]

    monkeypatch.setattr(gateway, "produce", failing)
    answer = await answer_to(gateway)
    assert answer.status_code == status
    good, bad = answer.json()["offsets"]
    assert good == {"partition": 0, "offset": 7, "error_code": None, "error": None}
    assert (bad["partition"], bad["offset"], bad["error_code"]) == (None, None, code)
    assert bad["error"]
    assert bad["kafka_error"] == error.code.name


async def test_a_request_that_may_be_sent_again_says_so(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any, **__: Any) -> list[Produced]:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)

    monkeypatch.setattr(gateway, "produce", failing)
    answer = await answer_to(gateway)
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50003)
    assert answer.headers["retry-after"] == "1"
