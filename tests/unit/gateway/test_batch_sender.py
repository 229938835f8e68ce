"""What becomes of a batch, by the broker's answer."""

import asyncio
from pathlib import Path

from headrace.client import NewTopic
from headrace.client.core.backoff import Backoff
from headrace.client.core.produce_outcome import ProduceOutcome, response_outcome
from headrace.core.errors import RETRIABLE_CODES, ErrorCode
from headrace.gateway import OutRecord
from headrace.network.send_request import SendRequest
from headrace.node.system import RealRandomness
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.gateways import gateway_of


async def test_a_duplicate_without_an_offset_is_no_success(tmp_path: Path) -> None:
    async with gateway_of("local", tmp_path) as gateway:
        await gateway.admin.create_topics([NewTopic("orders", 1)])
        records = [OutRecord(b"1"), OutRecord(b"2")]
        await gateway.produce("orders", records, key="k")
        submit = gateway.client.requests.submit

        def forgetful(ask: SendRequest) -> object:
            """The broker has the batch, and has forgotten where."""
            if not isinstance(ask.request, ProduceRequest):
                return submit(ask)
            return answered(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

        gateway.client.requests.submit = forgetful  # type: ignore[assignment]  # a broker's word
        done = await gateway.produce("orders", records, key="k")
    assert [each.offset for each in done] == [-1, -1]
    assert {each.error.code for each in done if each.error} == {ErrorCode.DUPLICATE_SEQUENCE_NUMBER}


async def test_without_a_key_only_what_was_not_written_is_sent_again(tmp_path: Path) -> None:
    """Every code that a broker can give, once; after it the broker takes the records."""
    async with gateway_of("local", tmp_path) as gateway:
        await gateway.admin.create_topics([NewTopic("orders", 1)])
        submit = gateway.client.requests.submit
        said: list[ErrorCode] = []
        sent = 0

        def refusing_once(ask: SendRequest) -> object:
            nonlocal sent
            if not isinstance(ask.request, ProduceRequest):
                return submit(ask)
            sent += 1
            return answered(said.pop()) if said else submit(ask)

        gateway.client.requests.submit = refusing_once  # type: ignore[assignment]  # a broker's word
        gateway.client.requests.session.backoff = Backoff(0, 0, RealRandomness())
        for code in ErrorCode:
            if not code:
                continue
            said[:], sent = [code], 0
            (done,) = await gateway.produce("orders", [OutRecord(b"1")])
            not_written = response_outcome(code) is ProduceOutcome.NOT_WRITTEN
            assert (sent == 2) is (not_written and code in RETRIABLE_CODES), code
            assert (done.error is None) is (sent == 2), code


def answered(code: ErrorCode) -> "asyncio.Future[ProduceResponse]":
    part = PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
    topic = TopicProduceResponse(name="orders", partition_responses=[part])
    answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    answer.set_result(ProduceResponse(responses=[topic]))
    return answer
