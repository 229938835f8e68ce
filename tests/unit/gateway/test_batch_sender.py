"""What becomes of a batch, by the broker's answer."""

import asyncio
from pathlib import Path

from headrace.client import NewTopic
from headrace.core.errors import ErrorCode
from headrace.gateway import OutRecord
from headrace.network.send_request import SendRequest
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
            code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            part = PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
            topic = TopicProduceResponse(name="orders", partition_responses=[part])
            answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
            answer.set_result(ProduceResponse(responses=[topic]))
            return answer

        gateway.client.requests.submit = forgetful  # type: ignore[method-assign, assignment]  # a broker's word
        done = await gateway.produce("orders", records, key="k")
    assert [each.offset for each in done] == [-1, -1]
    assert {each.error.code for each in done if each.error} == {ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
