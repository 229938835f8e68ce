"""A disk without room: writes fail with Kafka's code, reads go on, and room is enough to heal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.core.errors import ErrorCode
from headrace.core.ids import TopicPartition
from headrace.log.names import RECOVERY_POINTS
from tests.faults.load import scan, wait_until
from tests.faults.mounts import SmallDisk, small_disk
from tests.faults.wire import EARLIEST, LATEST, Wire
from tests.support.batches import Batch
from tests.support.brokers import HeadraceProcess
from tests.support.groups import required
from tests.support.history import History
from tests.support.history_checks import check
from tests.support.topics import Topics

DISK_BYTES = 2 << 20
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
}
RETENTION_MS = 3_600_000
VALUE = b"x" * 10_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    context = small_disk(tmp_path / "disk", DISK_BYTES)
    mounted = required(context.__enter__)
    yield mounted
    context.__exit__(None, None, None)


@pytest.fixture
def broker(disk: SmallDisk, request: pytest.FixtureRequest) -> Iterator[HeadraceProcess]:
    settings = {**SETTINGS, **getattr(request, "param", {})}
    started = HeadraceProcess(disk.path, settings)
    started.start()
    yield started
    started.kill()


under_both_policies = pytest.mark.parametrize(
    "broker",
    [{"log.flush.policy": "fsync"}, {"log.flush.policy": "os"}],
    indirect=True,
    ids=["fsync", "os"],
)
without_checkpoints = pytest.mark.parametrize(
    "broker", [{"log.flush.offset.checkpoint.interval.ms": "3600000"}], indirect=True, ids=[""]
)


def batch(number: int, timestamp_ms: int | None = None) -> bytes:
    """One that retention leaves alone, unless it has another timestamp."""
    now_ms = time.time_ns() // 10**6
    return Batch([(b"%d" % number, VALUE)], base_timestamp_ms=timestamp_ms or now_ms).encode()


def create_until_full(topics: Topics) -> tuple[list[str], KafkaError]:
    """What was created before the first refusal: the last page of the log has room for some."""
    created: list[str] = []
    while True:
        try:
            created.append(topics.create(f"t{len(created)}"))
        except KafkaException as refused:
            return created, refused.args[0]


def produce_until_full(wire: Wire, topic: str, timestamp_ms: int | None = None) -> int:
    """How many were acknowledged before the first refusal."""
    for number in range(DISK_BYTES):
        answer = wire.produce(topic, batch(number, timestamp_ms))
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in (answer.error_message or "")
            return number
        assert answer.base_offset == number
    raise AssertionError("the disk never filled")


@under_both_policies
def test_a_full_disk_refuses_writes_serves_reads_and_heals(
    broker: HeadraceProcess, disk: SmallDisk
) -> None:
    Topics(broker.bootstrap_servers).create("t")
    with Wire(broker.port) as wire:
        acknowledged = produce_until_full(wire, "t")
        disk.fill()
        for _ in range(3):
            assert wire.produce("t", batch(-1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.offset("t", LATEST) == acknowledged
        assert [each.offset for each in wire.records("t")] == list(range(acknowledged))
        disk.free()
        disk.resize(2 * DISK_BYTES)
        again = wire.produce("t", batch(acknowledged))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, acknowledged)
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        assert [each.offset for each in wire.records("t")] == list(range(acknowledged + 1))
        assert wire.produce("t", batch(0)).base_offset == acknowledged + 1
    assert "Traceback" not in broker.log_path.read_text()


@without_checkpoints
def test_retention_makes_room_on_a_full_disk_by_itself(
    broker: HeadraceProcess, disk: SmallDisk
) -> None:
    """It must not need room to make some."""
    # The last segment is half full when the disk is: a roll has not just written a snapshot.
    configs = {"internal.segment.bytes": "300000", "retention.ms": str(RETENTION_MS)}
    Topics(broker.bootstrap_servers).create("t", 1, configs)
    # Too old in a while, when the disk is full.
    timestamp_ms = time.time_ns() // 10**6 - RETENTION_MS + 2000
    with Wire(broker.port) as wire:
        acknowledged = produce_until_full(wire, "t", timestamp_ms)
        disk.fill()
        assert wire.offset("t", EARLIEST) == 0
        wait_until(lambda: wire.offset("t", EARLIEST) > 0, "no retention")
        wait_until(lambda: disk.free_bytes() > DISK_BYTES // 2, "no room")
        assert wire.produce("t", batch(0)).base_offset == acknowledged
    assert "Traceback" not in broker.log_path.read_text()


def test_checkpoints_go_on_after_the_disk_was_full(
    broker: HeadraceProcess, disk: SmallDisk
) -> None:
    Topics(broker.bootstrap_servers).create("t")
    with Wire(broker.port) as wire:
        acknowledged = produce_until_full(wire, "t")
        disk.fill()
        wait_until(lambda: "No space left" in broker.log_path.read_text(), "no failed checkpoint")
        disk.free()
        disk.resize(2 * DISK_BYTES)
        assert wire.produce("t", batch(0)).base_offset == acknowledged
        table = disk.path / RECOVERY_POINTS
        expected = f"t 0 {acknowledged + 1}\n"
        wait_until(lambda: expected in table.read_text(), "no checkpoint")
    assert "Traceback" not in broker.log_path.read_text()


def test_metadata_changes_are_refused_while_the_disk_is_full_and_work_again_after(
    broker: HeadraceProcess, disk: SmallDisk
) -> None:
    topics = Topics(broker.bootstrap_servers)
    disk.fill()
    created, refusal = create_until_full(topics)
    assert refusal.code() == KafkaError.KAFKA_STORAGE_ERROR
    disk.free()
    created.append(topics.create("after"))
    broker.kill()
    broker.start()
    found = Topics(broker.bootstrap_servers).admin.list_topics(timeout=20).topics
    assert sorted(found) == sorted(created)


@under_both_policies
def test_a_producer_goes_on_by_itself_when_there_is_room_again(
    broker: HeadraceProcess, disk: SmallDisk
) -> None:
    """An idempotent producer retries through the want of room: nothing lost, nothing twice."""
    Topics(broker.bootstrap_servers).create("t")
    history = History()
    partition = TopicPartition("t", 0)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 10,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
        }
    )

    def send(number: int) -> None:
        value = b"%d-" % number + VALUE
        sent = history.begin_send("producer", partition, value)

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            history.acked(sent, message.offset() or 0)

        producer.produce("t", value, partition=0, on_delivery=delivered)

    count = DISK_BYTES // len(VALUE) + 50
    for number in range(count):
        send(number)
    wait_until(lambda: producer.poll(0.01) >= 0 and disk.free_bytes() < 200_000, "not full")
    disk.fill()
    producer.flush(0.5)
    assert len(producer) > 0, "everything fitted"
    disk.free()
    disk.resize(4 * DISK_BYTES)
    assert producer.flush(60) == 0
    found = scan(broker.bootstrap_servers, [partition])[partition]
    broker.stop()
    history.scanned(found.final(partition, broker.data_dir))
    assert check(history) == []
    assert len(found.records) == count
    assert "Traceback" not in broker.log_path.read_text()


def test_a_start_on_a_full_disk_says_why_it_cannot_be_and_loses_nothing(
    broker: HeadraceProcess, disk: SmallDisk
) -> None:
    Topics(broker.bootstrap_servers).create("t")
    with Wire(broker.port) as wire:
        acknowledged = produce_until_full(wire, "t")
    disk.fill()
    broker.kill()
    with pytest.raises(Exception, match="No space left"):
        broker.start()
    said = broker.log_path.read_text()
    assert "Traceback" not in said
    assert "hint:" in said
    disk.free()
    disk.resize(2 * DISK_BYTES)
    broker.start()
    with Wire(broker.port) as wire:
        assert len(wire.records("t")) == acknowledged
