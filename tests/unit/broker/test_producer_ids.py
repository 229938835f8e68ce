"""Producer ids come in blocks from the controller, and none is given out twice."""

import asyncio

import pytest

from headrace.broker.producer_ids import ProducerIds
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId
from headrace.metadata.cache import MetadataCache
from headrace.metadata.controller_channel import ControllerRequests
from headrace.protocol.message import Message
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK = 3


class Controller:
    """Gives blocks of three, or refuses."""

    def __init__(self) -> None:
        self.blocks = 0
        self.refusal = ErrorCode.NONE

    async def send(self, request: Message) -> Message:
        assert request == AllocateProducerIdsRequest(broker_id=4, broker_epoch=-1)
        await asyncio.sleep(0)
        if self.refusal:
            return AllocateProducerIdsResponse(
                error_code=self.refusal, producer_id_start=0, producer_id_len=0
            )
        self.blocks += 1
        return AllocateProducerIdsResponse(
            producer_id_start=self.blocks * 10, producer_id_len=BLOCK
        )


def ids_of(controller: Controller) -> ProducerIds:
    return ProducerIds(ControllerRequests(controller), MetadataCache(), NodeId(4))


async def test_many_at_once_share_blocks_and_no_id_comes_twice() -> None:
    controller = Controller()
    ids = ids_of(controller)
    found = await asyncio.gather(*(ids.next() for _ in range(7)))
    assert sorted(found) == [10, 11, 12, 20, 21, 22, 30]
    assert await ids.next() == 31
    assert controller.blocks == 3


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_producer_is_told_what_it_understands(refusal: ErrorCode, told: ErrorCode) -> None:
    controller = Controller()
    controller.refusal = refusal
    ids = ids_of(controller)
    with pytest.raises(ApiError) as refused:
        await ids.next()
    assert refused.value.code is told
