"""Producer ids for idempotent producers, handed out from blocks that the controller reserves."""

import asyncio

from headrace.controller.commands import AllocateProducerIds
from headrace.controller.controller import Controller
from headrace.core.ids import NodeId, ProducerId


class ProducerIds:
    """One id at a time; asks for the next block when the current one is used up.

    What is left of a block at a stop or crash is lost, which costs nothing: ids are 64 bits,
    and none is ever given out twice.
    """

    def __init__(self, controller: Controller, node_id: NodeId) -> None:
        self._controller = controller
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next(self) -> ProducerId:
        while self._next >= self._end:
            async with self._refill:
                if self._next >= self._end:
                    block = await self._controller.submit(AllocateProducerIds(self._node_id))
                    self._next, self._end = block.first_id, block.first_id + block.count
        self._next += 1
        return ProducerId(self._next - 1)
