"""Requests of very many items: made by a worker up to a bound, and refused unread beyond it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import processor
from headrace.broker.long_requests import ITEMS_AT_ONCE, ITEMS_MAX
from headrace.broker.routes import ROUTES
from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.node.node import Node
from headrace.protocol.api_keys import ApiKey, response_class
from headrace.protocol.decoder import compile_decoder
from headrace.protocol.encoder import compile_encoder
from headrace.protocol.frames import encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.long_requests import Entries, Known, LongRequests, advertised_arrays
from tests.support.long_requests import Path as ArrayPath
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

NOBODY = LongRequests(Known([], 1, "g", "g", "g"))
# The longest array of each API, as the path to it, in its newest version.
ARRAYS: dict[int, tuple[int, ArrayPath]] = {}
for _key, _version, _path in advertised_arrays():
    if len(_path) >= len(ARRAYS.get(_key, (0, ()))[1]):
        ARRAYS[_key] = (_version, _path)


def frame_of(api_key: int, count: int) -> bytes:
    version, path = ARRAYS[api_key]
    cls = ROUTES[api_key].load().request_class
    request = NOBODY.request(cls, version, path, count, Entries.UNKNOWN)
    return encode_request(request, version, 1, "many")


def address(node: Node) -> tuple[str, int]:
    return node.addresses["PLAINTEXT"]


def produce(count: int) -> ProduceRequest:
    """The shortest form: partitions without a batch."""
    partitions = [PartitionProduceData(index=number, records=None) for number in range(count)]
    topic = TopicProduceData(name="nowhere", partition_data=partitions)
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])


@pytest.mark.parametrize("api_key", ARRAYS, ids=lambda key: ApiKey(key).name)
async def test_more_items_than_the_bound_cost_the_connection_and_no_objects(
    tmp_path: Path, api_key: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, _ = ARRAYS[api_key]
    cls = ROUTES[api_key].load().request_class
    decode = compile_decoder(cls, version)
    made: list[object] = []

    def watched(*arguments: Any) -> tuple[Any, int]:
        request, end = decode(*arguments)
        made.append(request)
        return request, end

    monkeypatch.setitem(cls._decoders, version, watched)
    async with running_node(tmp_path) as node, RawClient(*address(node)) as client:
        client.send_bytes(frame_of(api_key, ITEMS_MAX + 1))
        assert await client.is_closed_by_broker()
    assert made == []
    assert "too many items" in caplog.text


@pytest.mark.parametrize("api_key", ARRAYS, ids=lambda key: ApiKey(key).name)
async def test_many_items_are_read_and_answered_away_from_the_event_loop(
    tmp_path: Path, api_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, _ = ARRAYS[api_key]
    ours = threading.get_ident()
    decoded: list[int] = []
    encoded: list[int] = []

    def noting(call: Callable[..., Any], threads: list[int]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            result = call(*arguments)
            threads.append(threading.get_ident())
            return result

        return watched

    async with (
        running_node(
            tmp_path, auto_create_topics_enable="false", group_initial_rebalance_delay_ms="0"
        ) as node,
        RawClient(*address(node)) as client,
    ):
        await client.call(ApiVersionsRequest(), 0)
        frame = frame_of(api_key, 2 * ITEMS_AT_ONCE)
        request_class = ROUTES[api_key].load().request_class
        answer_class = response_class(api_key)
        decode = noting(compile_decoder(request_class, version), decoded)
        encode = noting(compile_encoder(answer_class, version), encoded)
        monkeypatch.setitem(request_class._decoders, version, decode)
        monkeypatch.setitem(answer_class._encoders, version, encode)
        client.send_bytes(frame)
        await client.receive_frame()
    assert len(decoded) == len(encoded) == 1
    assert ours not in decoded + encoded


async def test_requests_behind_a_long_one_are_answered_behind_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, RawClient(*address(node)) as client:
        await client.call(ApiVersionsRequest(), 0)
        long = client.send(produce(2 * ITEMS_AT_ONCE), 9)
        short = client.send(ApiVersionsRequest(), 0)
        first, answer = await client.receive(ProduceResponse, 9)
        second, _ = await client.receive(ApiVersionsResponse, 0)
    assert (first, second) == (long, short)
    (topic,) = answer.responses
    assert len(topic.partition_responses) == 2 * ITEMS_AT_ONCE
    codes = {each.error_code for each in topic.partition_responses}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_batches_for_many_partitions_are_stored(tmp_path: Path) -> None:
    count = ITEMS_AT_ONCE + 10
    batch = bytes(encode_batch([Record(0, 1_000, None, b"v", ())]))
    request = produce(count)
    request.topic_data[0].name = "t"
    for each in request.topic_data[0].partition_data:
        each.records = batch
    async with running_node(tmp_path, log_flush_policy="os") as node:
        await node.controller.submit(CreateTopics((TopicToCreate("t", count, 1),)))
        async with RawClient(*address(node)) as client:
            for expected in range(2):
                answer = await client.call(request, 9)
                assert isinstance(answer, ProduceResponse)
                (topic,) = answer.responses
                outcomes = {
                    (each.error_code, each.base_offset) for each in topic.partition_responses
                }
                assert outcomes == {(0, expected)}


async def test_bad_bytes_behind_many_items_cost_the_connection(tmp_path: Path) -> None:
    frame = bytearray(encode_request(produce(2 * ITEMS_AT_ONCE), 9, 1, "cut"))[:-3]
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    async with running_node(tmp_path) as node, RawClient(*address(node)) as client:
        client.send_bytes(bytes(frame))
        assert await client.is_closed_by_broker()


async def test_another_client_is_served_while_many_items_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()
    decode = compile_decoder(ProduceRequest, 9)

    def slow(*arguments: Any) -> tuple[Any, int]:
        decoded = decode(*arguments)
        assert going_on.wait(20)
        return decoded

    async with (
        running_node(tmp_path) as node,
        RawClient(*address(node)) as busy,
        RawClient(*address(node)) as other,
    ):
        monkeypatch.setitem(ProduceRequest._decoders, 9, slow)
        busy.send(produce(2 * ITEMS_AT_ONCE), 9)
        for _ in range(10):
            await other.call(ApiVersionsRequest(), 0)
        going_on.set()
        await busy.receive(ProduceResponse, 9)


async def test_batches_of_many_partitions_are_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "ITEMS_AT_ONCE", 5)
    data = bytes(encode_batch([Record(0, 1_000, None, b"value", ())]))
    async with running_node(tmp_path) as node, RawClient(*address(node)) as client:
        await node.controller.submit(CreateTopics((TopicToCreate("t", 10, 1),)))
        partitions = [PartitionProduceData(index=number, records=data) for number in range(10)]
        topic = TopicProduceData(name="t", partition_data=partitions)
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        answer = await client.call(request, 9)
        assert isinstance(answer, ProduceResponse)
        assert {each.error_code for each in answer.responses[0].partition_responses} == {0}
    for number in range(10):
        assert (tmp_path / f"t-{number}" / f"{0:020}.log").read_bytes().count(b"value") == 1
