"""Topic keys that decide how a log is cut, kept, flushed and deleted."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker
from headrace.testing.unsynced_files import UnsyncedFile
from tests.support.config_effects import (
    BUSY,
    alter,
    effect_of,
    eventually,
    partition_files,
    publish,
    start_offset,
)

SMALL_SEGMENTS = {"internal.segment.bytes": "300"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=BUSY) as running:
        yield running


def segments(broker: Broker, topic: str) -> int:
    return len(partition_files(broker, topic, ".log"))


@effect_of("segment.bytes")
def test_a_full_segment_is_followed_by_another(broker: Broker) -> None:
    topic = broker.create_topic("full", configs={"segment.bytes": "1048576"})
    publish(broker, topic, [bytes(600_000)] * 3)
    assert segments(broker, topic) == 3


@effect_of("internal.segment.bytes")
def test_segments_may_be_made_tiny_for_tests(broker: Broker) -> None:
    topic = broker.create_topic("tiny", configs=SMALL_SEGMENTS)
    publish(broker, topic, [bytes(200)] * 4)
    assert segments(broker, topic) == 4


@effect_of("segment.ms")
def test_an_old_segment_is_followed_by_another(broker: Broker) -> None:
    topic = broker.create_topic("aged")
    start = int(time.time() * 1000) - 100_000
    publish(broker, topic, [b"x", b"x"], timestamps_ms=[start, start + 20_000])
    assert segments(broker, topic) == 1
    alter(broker, topic, {"segment.ms": "10000"})
    publish(broker, topic, [b"x"], timestamps_ms=[start + 40_000])
    assert segments(broker, topic) == 2


@effect_of("segment.jitter.ms")
def test_jitter_lets_segments_age_before_their_time(broker: Broker) -> None:
    start = int(time.time() * 1000) - 1_000_000
    stamps = [start + 9_000 * number for number in range(30)]
    exact = broker.create_topic("no-jitter", configs={"segment.ms": "10000"})
    early = broker.create_topic(
        "jitter", configs={"segment.ms": "10000", "segment.jitter.ms": "10000"}
    )
    for topic in (exact, early):
        publish(broker, topic, [b"x"] * len(stamps), timestamps_ms=stamps)
    # Every second record is more than 10 s after the start of its segment; with jitter many
    # a first one is too.
    assert segments(broker, exact) == 15
    assert segments(broker, early) > 15


@effect_of("segment.index.bytes")
def test_a_full_index_closes_its_segment(broker: Broker) -> None:
    configs = {"segment.index.bytes": "40", "index.interval.bytes": "0"}
    topic = broker.create_topic("indexed", configs=configs)
    publish(broker, topic, [b"x"] * 12)
    assert segments(broker, topic) > 1


@effect_of("index.interval.bytes")
def test_a_shorter_interval_makes_a_larger_index(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        sparse = broker.create_topic("sparse")
        dense = broker.create_topic("dense", configs={"index.interval.bytes": "100"})
        for topic in (sparse, dense):
            publish(broker, topic, [bytes(500)] * 40)
    sizes = [
        sum(index.stat().st_size for index in (tmp_path / f"{topic}-0").glob("*.index"))
        for topic in (sparse, dense)
    ]
    assert sizes[1] > 4 * sizes[0] > 0


@effect_of("retention.bytes")
def test_what_is_too_much_is_deleted_from_the_old_end(broker: Broker) -> None:
    topic = broker.create_topic("large", configs=SMALL_SEGMENTS)
    publish(broker, topic, [bytes(200)] * 10)
    assert start_offset(broker, topic) == 0
    alter(broker, topic, {"retention.bytes": "900"})
    eventually(lambda: start_offset(broker, topic) >= 5, "the oldest segments go")
    assert segments(broker, topic) >= 3


@effect_of("retention.ms")
def test_what_is_too_old_is_deleted(broker: Broker) -> None:
    topic = broker.create_topic("old", configs=SMALL_SEGMENTS)
    long_ago = int(time.time() * 1000) - 3_600_000
    publish(broker, topic, [bytes(200)] * 3, timestamps_ms=[long_ago] * 3)
    publish(broker, topic, [bytes(200)])
    assert start_offset(broker, topic) == 0
    alter(broker, topic, {"retention.ms": "60000"})
    eventually(lambda: start_offset(broker, topic) == 3, "only what is recent stays")


@effect_of("file.delete.delay.ms")
def test_files_outlive_their_segment_by_the_delay(broker: Broker) -> None:
    long_ago = int(time.time() * 1000) - 3_600_000
    for name, delay in (("at-once", "0"), ("delayed", "3600000")):
        configs = {**SMALL_SEGMENTS, "file.delete.delay.ms": delay}
        topic = broker.create_topic(name, configs=configs)
        publish(broker, topic, [bytes(200)] * 3, timestamps_ms=[long_ago] * 3)
        publish(broker, topic, [bytes(200)])
        alter(broker, topic, {"retention.ms": "60000"})
        eventually(lambda topic=topic: start_offset(broker, topic) == 3, "the old segments go")  # type: ignore[misc]  # the default binds the loop's topic
    eventually(lambda: not partition_files(broker, "at-once", ".deleted"), "the files go")
    assert len(partition_files(broker, "delayed", ".log.deleted")) == 3


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Directories of partitions whose data was synced, as it happens."""
    directories: set[str] = set()

    def sync(file: UnsyncedFile) -> None:
        if file.path.endswith(".log"):
            directories.add(Path(file.path).parent.name)

    monkeypatch.setattr(UnsyncedFile, "sync", sync)
    return directories


@effect_of("flush.messages")
def test_a_partition_is_flushed_after_so_many_records(synced: set[str]) -> None:
    with Broker() as broker:
        left = broker.create_topic("left")
        flushed = broker.create_topic("flushed", configs={"flush.messages": "3"})
        publish(broker, left, [b"x"] * 2)
        publish(broker, flushed, [b"x"] * 2)
        assert not synced & {"left-0", "flushed-0"}
        publish(broker, flushed, [b"x"])
        eventually(lambda: "flushed-0" in synced, "three records are flushed")
        assert "left-0" not in synced


@effect_of("flush.ms")
def test_a_partition_is_flushed_when_records_have_waited(synced: set[str]) -> None:
    with Broker() as broker:
        left = broker.create_topic("left")
        flushed = broker.create_topic("flushed", configs={"flush.ms": "1"})
        publish(broker, left, [b"x"])
        publish(broker, flushed, [b"x"])
        eventually(lambda: "flushed-0" in synced, "the record is flushed")
        assert "left-0" not in synced
