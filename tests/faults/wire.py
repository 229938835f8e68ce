"""One plain connection that blocks: requests as a test wants them, answers decoded."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import NamedTuple, Self, TypeVar, cast

from headrace.core.errors import ErrorCode
from headrace.protocol.api_keys import response_class
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import iterate_headers

M = TypeVar("M", bound=Message)
TIMEOUT_SECONDS = 20
EARLIEST, LATEST = -2, -1


class Found(NamedTuple):
    """One record as a test compares it."""

    offset: int
    timestamp: int
    value: bytes | None


class Wire:
    """Partition 0 of a topic, unless a call says otherwise."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def call(self, request: Message, version: int, answer: type[M]) -> M:
        """One request and its answer."""
        self.send(request, version)
        assert request.schema.api_key is not None
        assert response_class(request.schema.api_key) is answer
        correlation_id, response = decode_response(answer, self.receive(), version)
        assert correlation_id == self._correlation_id
        return response

    def send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        self.socket.sendall(encode_request(request, version, self._correlation_id, "faults"))

    def receive(self) -> bytes:
        """The next frame without its length; `EOFError` if the broker hung up."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def is_closed_by_broker(self) -> bool:
        """Wait for the end of the connection; False if something else comes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def produce(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
    ) -> PartitionProduceResponse:
        return self.produce_all(topic, {partition: records}, acks=acks, version=version)[0]

    def produce_all(
        self, topic: str, records: dict[int, bytes], *, acks: int = -1, version: int = 9
    ) -> list[PartitionProduceResponse]:
        """One request for several partitions."""
        data = [PartitionProduceData(index=each, records=records[each]) for each in records]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=TIMEOUT_SECONDS * 1000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        return self.call(request, version, ProduceResponse).responses[0].partition_responses

    def fetch(
        self, topic: str, offset: int, *, partition: int = 0, max_bytes: int = 1 << 20
    ) -> PartitionData:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])]
        )
        return self.call(request, 12, FetchResponse).responses[0].partitions[0]

    def find(
        self, topic: str, timestamp: int, *, partition: int = 0
    ) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        return self.call(request, 5, ListOffsetsResponse).topics[0].partitions[0]

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int:
        """By time, or `EARLIEST` or `LATEST`; -1 if there is none."""
        found = self.find(topic, timestamp, partition=partition)
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
        return found.offset

    def epoch_end(self, topic: str, epoch: int) -> tuple[int, int]:
        """The epoch found and where it ended."""
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        found = self.call(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    def create(self, topic: str) -> ErrorCode:
        """Create a topic; what was said to that."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            timeout_ms=TIMEOUT_SECONDS * 1000,
        )
        return ErrorCode(self.call(request, 7, CreateTopicsResponse).topics[0].error_code)

    def alter(self, topic: str, changes: dict[str, str]) -> None:
        """Set configs of a topic."""
        configs = [
            AlterableConfig(name=name, config_operation=0, value=changes[name]) for name in changes
        ]
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = self.call(request, 1, IncrementalAlterConfigsResponse).responses[0]
        assert answer.error_code == ErrorCode.NONE, answer

    def producer_id(self) -> int:
        request = InitProducerIdRequest(transaction_timeout_ms=1000)
        return self.call(request, 4, InitProducerIdResponse).producer_id

    def records(self, topic: str, offset: int | None = None, *, partition: int = 0) -> list[Found]:
        """Every record from `offset` (or the start) to the end."""
        at = self.offset(topic, EARLIEST, partition=partition) if offset is None else offset
        found: list[Found] = []
        while True:
            answer = self.fetch(topic, at, partition=partition)
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
            if not answer.records:
                return found
            view = memoryview(cast(bytes, answer.records))
            for position, header in iterate_headers(view):
                found += (
                    Found(each.offset, each.timestamp, each.value)
                    for each in iterate_records(view, position, header)
                    if each.offset >= at
                )
                at = max(at, header.last_offset + 1)
