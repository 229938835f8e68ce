"""A broker that answers by script, on whatever event loop it is given.

    broker = ScriptedBroker(port=9092)
    broker.on(MetadataRequest, lambda request: MetadataResponse(...))

A script returns the answer, `Late` (the answer, after a while), `SILENCE` (no answer, ever) or
`HANG_UP`. It speaks real frames, so
what it takes from the wire has been through the client's codec.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar, cast

from headrace.protocol.api_keys import request_class
from headrace.protocol.frames import RequestHeader, decode_request_header, encode_response
from headrace.protocol.message import Message
from headrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.client_core import TOPIC_ID

M = TypeVar("M", bound=Message)


class Instead(Enum):
    """What a script may do other than answer."""

    SILENCE = auto()
    HANG_UP = auto()


class Late(NamedTuple):
    """An answer that takes its time."""

    answer: Message
    seconds: float


SILENCE, HANG_UP = Instead.SILENCE, Instead.HANG_UP
Script = Callable[[Any], Message | Instead | Late]


class ScriptedBroker:
    """One node that knows topic "t"; scripts decide about everything else."""

    def __init__(self, port: int, *, partitions: int = 1, node_id: int = 0) -> None:
        self.port = port
        self.node_id = node_id
        self.partitions = partitions
        self.seen: list[Message] = []
        self.connections = 0
        self._scripts: dict[type[Message], Script] = {}
        self.on(ApiVersionsRequest, self._versions)
        self.on(MetadataRequest, self._metadata)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: _Peer(self), "broker", self.port)

    def on(self, request: type[M], script: Callable[[M], Message | Instead | Late]) -> None:
        """Answer this kind of request from now on."""
        self._scripts[request] = script

    def requests(self, kind: type[M]) -> list[M]:
        """All requests of a kind so far."""
        return [request for request in self.seen if isinstance(request, kind)]

    def play(self, request: Message) -> Message | Instead | Late:
        self.seen.append(request)
        return self._scripts[type(request)](request)

    def _versions(self, _: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=kind.schema.api_key or 0,
                    min_version=kind.schema.lowest_version,
                    max_version=kind.schema.highest_version,
                )
                for kind in self._scripts
            ]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted = request.topics is None or any(
            topic.name == "t" or topic.topic_id == TOPIC_ID for topic in request.topics
        )
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=self.node_id,
                leader_epoch=0,
                replica_nodes=[self.node_id],
                isr_nodes=[self.node_id],
            )
            for index in range(self.partitions)
        ]
        topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=self.node_id, host="broker", port=self.port)],
            cluster_id="scripted",
            controller_id=self.node_id,
            topics=[topic] if wanted else [],
        )


class _Peer(asyncio.Protocol):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._bytes = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._broker.connections += 1

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= 4:
            end = 4 + int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < end:
                return
            frame = bytes(self._bytes[4:end])
            del self._bytes[:end]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        header = decode_request_header(frame)
        kind = request_class(header.api_key)
        request = kind.decode(frame, header.api_version, header.body_position)
        answer = self._broker.play(request)
        if answer is HANG_UP:
            self._transport.abort()
        elif isinstance(answer, Late):
            loop = asyncio.get_running_loop()
            loop.call_later(answer.seconds, self._send, answer.answer, header)
        elif isinstance(answer, Message):
            self._send(answer, header)

    def _send(self, answer: Message, header: RequestHeader) -> None:
        self._transport.write(encode_response(answer, header.api_version, header.correlation_id))
