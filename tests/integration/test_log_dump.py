"""Kafka's dump tool reads logs that were rolled, truncated, cut by a crash and written on."""

from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log.real_files import RealFileSystem
from tests.simulation.loop import SeededRandomness
from tests.support.dump_log import dump
from tests.support.groups import required
from tests.support.kafka_tools import DUMP_LOG, KafkaTools
from tests.support.logs import START_MS, ToldClock, append, batch, read_all

CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=500, file_delete_delay_ms=0)


class EventfulLogs:
    """Three partitions in one directory, which is left and entered again in every way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ToldClock()
        self.random = Random(5)
        self.topic_id = uuid4()
        self.partitions = [TopicPartition("eventful", number) for number in range(3)]
        self.sequences = [0, 0, 0]
        self.epoch = 0
        self.start()

    def start(self) -> None:
        self.epoch += 1
        randomness = SeededRandomness(self.random)
        self.directory = LogDirectory.open(
            RealFileSystem(), str(self.path), self.clock, randomness, node_id=NodeId(1)
        )
        for partition in self.partitions:
            self.directory.create(partition, self.topic_id, CONFIG)

    def log(self, number: int) -> PartitionLog:
        return self.directory.logs[self.partitions[number]]

    def write(self, batches: int) -> None:
        """Times mostly grow, sizes and codecs vary, some batches have append time."""
        for _ in range(batches):
            self.clock.ms += 10
            for number in range(3):
                count = self.random.randint(1, 9)
                late_ms = self.random.randint(-200, 50)
                sent = batch(
                    value=self.random.randbytes(self.random.randint(0, 60)),
                    timestamps=[self.clock.ms + late_ms + n for n in range(count)],
                    producer_id=1000 + number,
                    producer_epoch=self.epoch,
                    sequence=self.sequences[number],
                    codec=self.random.randint(0, 4),
                    append_time=number == 2,
                )
                append(self.log(number), sent, self.epoch)
                self.sequences[number] += count

    def crash(self, torn_bytes: int) -> None:
        """Die; a write that was under way reached the files only in part."""
        self.directory.release_lock()
        for partition in self.partitions:
            directory = self.path / str(partition)
            newest = max(directory.glob("*.log"))
            with newest.open("ab") as file:
                file.write(bytes(newest.read_bytes()[:torn_bytes]))
        self.start()
        self.sequences = [0, 0, 0]

    def stop_and_start(self) -> None:
        self.directory.close()
        self.start()
        self.sequences = [0, 0, 0]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> EventfulLogs:
    logs = EventfulLogs(tmp_path_factory.mktemp("logs") / "data")
    logs.write(60)
    logs.crash(torn_bytes=45)
    logs.write(40)
    logs.directory.checkpoint()
    logs.write(40)
    logs.crash(torn_bytes=90)
    logs.stop_and_start()
    logs.write(30)
    for number in range(3):
        logs.log(number).truncate_to(Offset(logs.log(number).log_end_offset - 100))
    logs.stop_and_start()
    logs.write(50)
    logs.log(1).advance_log_start(Offset(200))
    logs.log(1).apply_retention(START_MS, logs.log(1).log_end_offset)
    logs.directory.remove_deleted(logs.clock.ms)
    logs.write(10)
    logs.directory.checkpoint()
    logs.directory.close()
    return logs


def test_kafkas_dump_tool_finds_nothing_wrong(logs: EventfulLogs) -> None:
    paths = [logs.path / str(partition) for partition in logs.partitions]
    dumped = dump(required(KafkaTools), paths)
    logs.start()
    for number, path in enumerate(paths):
        dumped[path].assert_sound()
        assert dumped[path].segments > 4
        first = logs.log(number).log_start_offset
        seen = [(base, last) for base, last, _ in dumped[path].batches if last >= first]
        expected = [(h.base_offset, h.last_offset) for h in read_all(logs.log(number))]
        assert seen == expected
    logs.directory.close()


def test_kafka_reads_our_producer_snapshots(logs: EventfulLogs) -> None:
    newest = [max((logs.path / str(p)).glob("*.snapshot")) for p in logs.partitions]
    files = ",".join(map(str, newest))
    said = required(KafkaTools).run(DUMP_LOG, "--files", files).checked()
    logs.start()
    for number in range(3):
        (producer_id, producer), *_ = logs.log(number).producers
        last = producer.batches[-1]
        line = (
            f"producerId: {producer_id} producerEpoch: {producer.epoch} coordinatorEpoch: -1 "
            f"currentTxnFirstOffset: OptionalLong.empty lastTimestamp: {last.timestamp} "
            f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
            f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
            f"timestamp: {last.timestamp}"
        )
        assert line in said
    logs.directory.close()


def test_leader_epochs_survived_it_all(logs: EventfulLogs) -> None:
    logs.start()
    for number in range(3):
        log = logs.log(number)
        for header in read_all(log):
            assert log.epoch_for_offset(Offset(header.base_offset)) == header.leader_epoch
        assert log.latest_epoch == LeaderEpoch(5)
    logs.directory.close()
