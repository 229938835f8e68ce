"""One broker as a script sees it: requests go out one by one, answers go into a transcript."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from headrace.protocol.api_keys import APIS, response_class
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.differential.masks import Names, Plain, has_error, plain
from tests.support.brokers import HOST, BrokerProcess

CLOSED = "the connection was closed"
SILENCE = "no answer"
_ANSWER_SECONDS = 8.0
_SILENCE_SECONDS = 0.4

R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Step:
    """One request and its answer, made comparable."""

    script: str
    label: str
    api: str
    version: int
    answer: Plain
    good: bool


@dataclass(slots=True)
class Peer:
    """A connection to one broker with everything that was asked and answered over it."""

    broker: BrokerProcess
    script: str = ""
    steps: list[Step] = field(default_factory=list)
    names: Names = field(init=False)
    _socket: socket.socket | None = None
    _correlation_id: int = 0

    def __post_init__(self) -> None:
        self.names = Names(port=self.broker.port, data_dir=str(self.broker.data_dir))

    def ask(self, request: Message, version: int, label: str) -> Message | None:
        """Send, read the answer, note it; None when there was none or the connection closed."""
        api = APIS[_api_key(request)]
        frame = encode_request(request, version, self._next_id(), "differential")
        try:
            answer = self.ask_frame(frame)
        except TimeoutError:
            self.disconnect()
            self._note(label, api.name, version, SILENCE, good=False)
            return None
        if answer is None:
            self._note(label, api.name, version, CLOSED, good=False)
            return None
        found = decode_answer(_api_key(request), answer, version)
        self._note(
            label, api.name, version, plain(found, version, self.names), not has_error(found)
        )
        return found

    def tell(self, request: Message, version: int, label: str) -> None:
        """Send a request that must not be answered (acks=0), and note that it was not."""
        self._send(encode_request(request, version, self._next_id(), "differential"))
        assert self._socket is not None
        self._socket.settimeout(_SILENCE_SECONDS)
        try:
            said = CLOSED if self._socket.recv(1) == b"" else "an answer"
        except TimeoutError:
            said = SILENCE
        if said != SILENCE:
            self.disconnect()
        self._note(label, APIS[_api_key(request)].name, version, said, good=said == SILENCE)

    def quietly(self, request: Message, version: int, answer: type[R]) -> R:
        """Ask without noting: for preparations that are not under comparison."""
        found = self.ask_frame(encode_request(request, version, self._next_id(), "preparing"))
        assert found is not None, f"{self.broker.kind} closed the connection on {request}"
        decoded = decode_answer(_api_key(request), found, version)
        assert isinstance(decoded, answer)
        return decoded

    def ask_frame(self, frame: bytes) -> bytes | None:
        """One framed request as bytes; the answer without its length, None when closed."""
        try:
            self._send(frame)
            assert self._socket is not None
            self._socket.settimeout(_ANSWER_SECONDS)
            size = self._read(4)
            return self._read(struct.unpack(">i", size)[0])
        except ConnectionError:
            self.disconnect()
            return None

    def note(self, label: str, api: str, version: int, answer: Plain, good: bool) -> None:
        """Note an answer that was read by other means."""
        self._note(label, api, version, answer, good)

    def disconnect(self) -> None:
        """Close; the next request opens a new connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _note(self, label: str, api: str, version: int, answer: Plain, good: bool) -> None:
        self.steps.append(Step(self.script, label, api, version, answer, good))

    def _next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def _send(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection((HOST, self.broker.port), timeout=10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(frame)

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionResetError
            found += part
        return bytes(found)

    # Preparations that many scripts share; not noted.

    def create(self, topic: str, partitions: int = 1, **configs: str) -> UUID:
        """Create a topic, wait until it can be written to, and return its id."""
        new = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[new], timeout_ms=10_000, validate_only=False)
        frame = encode_request(request, 7, self._next_id(), "preparing")
        assert self.ask_frame(frame) is not None
        topic_id = self.topic_id(topic)
        self.wait_until_led(topic, range(partitions))
        return topic_id

    def wait_until_led(self, topic: str, partitions: Iterable[int]) -> None:
        """Wait until the broker acts as leader: it knows of its office a moment earlier."""
        asked = [
            ListOffsetsPartition(partition_index=number, timestamp=-1) for number in partitions
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
        )
        deadline = time.monotonic() + _ANSWER_SECONDS
        while has_error(self.quietly(request, 4, ListOffsetsResponse)):
            assert time.monotonic() < deadline, f"nobody leads {topic}"
            time.sleep(0.01)

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic, once all its partitions have leaders."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            found = self.quietly(request, 12, MetadataResponse).topics[0]
            ready = found.partitions and all(each.leader_id >= 0 for each in found.partitions)
            if found.error_code == 0 and ready:
                self.names.uuids.setdefault(found.topic_id, f"id of {topic}")
                return found.topic_id
            assert time.monotonic() < deadline, f"{topic} did not appear: {found}"
            time.sleep(0.01)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone from the metadata."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
        assert self.ask_frame(encode_request(request, 5, self._next_id(), "preparing")) is not None
        self.wait_until_gone(topic)

    def wait_until_gone(self, topic: str) -> None:
        """Wait until the metadata does not know the topic."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        deadline = time.monotonic() + _ANSWER_SECONDS
        while self.quietly(request, 12, MetadataResponse).topics[0].error_code != 3:
            assert time.monotonic() < deadline, f"{topic} does not go away"
            time.sleep(0.01)

    def producer_id(self) -> int:
        """A new producer id for idempotent batches."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            found = self.quietly(request, 4, InitProducerIdResponse)
            if found.error_code == 0:
                self.names.producers.setdefault(found.producer_id, len(self.names.producers))
                return found.producer_id
            assert time.monotonic() < deadline, f"no producer id: {found}"
            time.sleep(0.02)


def _api_key(request: Message) -> int:
    key = request.schema.api_key
    assert key is not None
    return key


def decode_answer(api_key: int, answer: bytes, version: int) -> Message:
    """Decode a response; ApiVersions falls back to v0 when the version was refused."""
    return decode_response(response_class(api_key), answer, version)[1]
