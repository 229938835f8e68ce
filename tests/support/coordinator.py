"""A small coordinator over real logs whose flushes, elections and reads a test decides about.

`Registers` is a shard of registers: each key holds the last text that was written to it, and a
reply can be parked until the next write of its key.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from headrace.coordinator.result import EncodedRecord, Reply, Result
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.core.topic_configs import TopicConfig
from headrace.log.partition_log import PartitionLog
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image, PartitionRegistration
from headrace.node.system import RealClock, RealRandomness
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.records.header import iterate_headers, parse_header
from headrace.replication.partition import Partition
from headrace.replication.settings import TopicSettings
from headrace.testing.unsynced_files import UnsyncedFileSystem

TOPIC = "__registers"
ME = NodeId(0)
OTHER = NodeId(1)
RESPONSE = HeartbeatResponse()
T = TypeVar("T")


class Register(NamedTuple):
    key: str
    text: str


def encode(record: Register) -> EncodedRecord:
    return record.key.encode(), record.text.encode()


class RegisterDecoder:
    def decode(self, key: bytes, value: bytes | None) -> Register | None:
        return Register(str(key, "utf-8"), str(value or b"", "utf-8"))


@dataclass
class Registers:
    """The state, and which calls came."""

    texts: dict[str, str] = field(default_factory=dict)
    parked: list[Reply] = field(default_factory=list)
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    timers: list[str | None] = field(default_factory=list)
    producers: list[int] = field(default_factory=list)

    def replay(self, record: Register, producer_id: int = -1) -> None:
        self.texts[record.key] = record.text
        self.producers.append(producer_id)

    def replay_marker(self, producer_id: int, epoch: int, commit: bool) -> None:
        self.markers.append((producer_id, epoch, commit))

    def loaded(self, result: Result[Register]) -> None:
        pass

    def timer(self, key: str | None, result: Result[Register]) -> None:  # noqa: ARG002
        self.timers.append(key)

    def metadata_changed(
        self, before: Image, image: Image, delta: Delta
    ) -> Iterator[Callable[[Result[Register]], None]]:
        """Every topic that is new is written down."""
        for name in sorted(delta.topics):
            if name in image.topics and name not in before.topics:
                yield partial(self._put, "topic", name)

    def _put(self, key: str, text: str, result: Result[Register]) -> None:
        result.append(Register(key, text))
        self.texts[key] = text

    def abandoned(self) -> list[Reply]:
        return self.parked

    def put(self, key: str, text: str, reply: Reply, result: Result[Register]) -> None:
        self._put(key, text, result)
        result.reply(reply, RESPONSE)


class LedPartition:
    """A partition that this node leads, over a real log that is on disk when the test says so."""

    def __init__(self, directory: Path, index: int = 0, topic: str = TOPIC) -> None:
        self.files = UnsyncedFileSystem()
        broker = BrokerConfig()
        settings = TopicSettings(TopicConfig.resolve({}, broker), broker)
        path = str(directory / f"{topic}-{index}")
        self.log = PartitionLog.open(self.files, path, settings.log, RealClock())
        self.partition = Partition(
            TopicPartition(topic, index),
            RealRandomness().uuid(),
            self.log,
            settings,
            request_flush=lambda _, __: None,
        )
        self.lead(0)

    def lead(self, epoch: int) -> LeaderEpoch:
        self.partition.become_leader(PartitionRegistration(ME, epoch, 0, (ME,), (ME,)))
        return LeaderEpoch(epoch)

    def follow(self, epoch: int) -> None:
        registration = PartitionRegistration(OTHER, epoch, 0, (ME, OTHER), (OTHER,))
        self.partition.become_follower(registration)

    def append(self, batch: bytes | bytearray) -> None:
        """As somebody else who led it."""
        with memoryview(batch) as view:
            self.log.append([(0, parse_header(batch))], view, self.partition.leader_epoch)

    def flush(self) -> None:
        self.partition.flushed(self.log.log_end_offset, 0)

    def batches(self) -> list[int]:
        """Records in each batch of the log."""
        data = self.log.read(Offset(0), 1 << 24, self.log.log_end_offset)
        return [header.record_count for _, header in iterate_headers(data)]


class Replicas:
    """The partitions that are here, and a disk that can be made to wait."""

    def __init__(self) -> None:
        self.partitions: dict[int, Partition] = {}
        self.offline: set[int] = set()

    def find(self, _: str, index: int) -> Partition | None:
        return self.partitions.get(index)

    def is_offline(self, _: str, index: int) -> bool:
        return index in self.offline

    async def in_worker(self, call: Callable[[], T]) -> T:
        return call()


class RegisterCoordinator:
    """The runtime over one partition, and what its clients have heard."""

    def __init__(self, directory: Path) -> None:
        self.clock = RealClock()
        self.led = LedPartition(directory)
        self.replicas = Replicas()
        self.replicas.partitions[0] = self.led.partition
        self.heard: list[tuple[str, ErrorCode]] = []
        self.shards: list[Registers] = []
        self.runtime: CoordinatorRuntime[Registers, Result[Register]] = CoordinatorRuntime(
            TOPIC,
            cast(Any, self.replicas),
            self.clock,
            Codec.NONE,
            partition_of=lambda _: 0,
            new_shard=self._new_shard,
            new_decoder=RegisterDecoder,
            new_result=lambda now_ms, time_ms: Result(encode, now_ms, time_ms),
        )

    async def close(self) -> None:
        await self.runtime.close()
        self.led.files.close()

    def _new_shard(self) -> Registers:
        self.shards.append(Registers())
        return self.shards[-1]

    def elect(self, epoch: int) -> None:
        leader_epoch = self.led.lead(epoch)
        self.runtime.on_elected(self.led.partition.id, leader_epoch)

    def resign(self, epoch: int) -> None:
        """In the order of a node: whoever waits for a commit hears of it before the runtime."""
        if epoch == self.led.partition.leader_epoch:
            self.led.follow(epoch + 1)
        self.runtime.on_resigned(self.led.partition.id, LeaderEpoch(epoch))

    def reply(self, name: str) -> Callable[[Message | ApiError], None]:
        def heard(outcome: Message | ApiError) -> None:
            code = outcome.code if isinstance(outcome, ApiError) else ErrorCode.NONE
            self.heard.append((name, code))

        return heard

    def put(self, text: str, key: str = "k") -> None:
        """A write that is heard of under its text."""
        reply = self.reply(text)
        self.runtime.write(key, lambda shard, result: shard.put(key, text, reply, result), reply)

    def park(self, name: str) -> None:
        reply = self.reply(name)
        self.runtime.write("k", lambda shard, _: shard.parked.append(reply), reply)

    def refusal(self) -> ErrorCode:
        """What whoever asks now is told."""
        try:
            self.runtime.write("k", lambda _, __: None)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    async def ready(self) -> Registers:
        """The shard, once it is loaded."""
        while (code := self.refusal()) is not ErrorCode.NONE:
            assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0)
        return self.shards[-1]
