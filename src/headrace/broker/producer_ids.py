"""Producer ids for idempotent producers, handed out from blocks that the controller reserves."""

import asyncio
from typing import Final, cast

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import NodeId, ProducerId
from headrace.metadata.cache import MetadataCache
from headrace.metadata.controller_channel import ControllerRequests
from headrace.protocol.message import Message
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

_BLOCK: Final = "producer ids"
_NOT_JUST_NOW: Final = frozenset(
    {
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)


class ProducerIds:
    """One id at a time; asks for the next block when the current one is used up.

    What is left of a block at a stop or crash is lost, which costs nothing: ids are 64 bits,
    and none is ever given out twice.
    """

    def __init__(
        self, requests: ControllerRequests, metadata: MetadataCache, node_id: NodeId
    ) -> None:
        self._requests = requests
        self._metadata = metadata
        self._node_id = node_id
        self._block: Message | None = None
        self._next = 0
        self._end = 0

    async def next(self) -> ProducerId:
        while self._next >= self._end:
            asked = self._requests.ask((_BLOCK,), self._request_for, _refusal)
            self._take_over(await asyncio.shield(asked[_BLOCK]))
        self._next += 1
        return ProducerId(self._next - 1)

    def _take_over(self, block: Message) -> None:
        """Once, of all who waited for it."""
        if block is not self._block:
            self._block = block
            response = cast(AllocateProducerIdsResponse, block)
            self._next = response.producer_id_start
            self._end = self._next + response.producer_id_len

    def _request_for(self, _: list[str]) -> Message:
        registration = self._metadata.image.brokers.get(self._node_id)
        return AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=-1 if registration is None else registration.epoch
        )


def _refusal(response: Message) -> dict[str, HeadraceError]:
    code = ErrorCode(cast(AllocateProducerIdsResponse, response).error_code)
    if code in _NOT_JUST_NOW:
        # As Kafka puts it: producers know this one, and ask again.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return {_BLOCK: ApiError(code)} if code else {}
