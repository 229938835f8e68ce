"""Topic keys that decide what is accepted, and in which form it is stored."""

import random
import time
from collections.abc import Iterator

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.compression import Codec
from headrace.testing import Broker
from tests.support.config_effects import (
    alter,
    config_value,
    effect_of,
    partition_files,
    publish,
    stored_batches,
)

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def refusal(broker: Broker, topic: str, value: bytes, **options: int) -> ErrorCode:
    stamps = [options["timestamp_ms"]] if "timestamp_ms" in options else None
    with pytest.raises(ApiError) as refused:
        publish(broker, topic, [value], timestamps_ms=stamps)
    return refused.value.code


def wordy(size: int) -> bytes:
    """Text that compresses, but better the harder one tries."""
    chance = random.Random(7)
    words = [chance.randbytes(chance.randint(2, 9)).hex().encode() for _ in range(300)]
    return b" ".join(chance.choice(words) for _ in range(size // 10))[:size]


@effect_of("max.message.bytes")
def test_a_batch_above_the_limit_is_refused_and_the_limit_can_be_raised(broker: Broker) -> None:
    topic = broker.create_topic("limit", configs={"max.message.bytes": "1000"})
    assert refusal(broker, topic, bytes(1000)) is ErrorCode.MESSAGE_TOO_LARGE
    alter(broker, topic, {"max.message.bytes": "2000"})
    assert publish(broker, topic, [bytes(1000)]) == [0]


@effect_of("cleanup.policy")
def test_a_compacted_topic_wants_keys_as_soon_as_it_is_one(broker: Broker) -> None:
    topic = broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    assert refusal(broker, topic, b"no key") is ErrorCode.INVALID_RECORD
    alter(broker, topic, {"cleanup.policy": "delete"})
    assert publish(broker, topic, [b"no key"]) == [0]


@effect_of("min.insync.replicas")
def test_no_more_in_sync_replicas_are_asked_for_than_the_topic_has(broker: Broker) -> None:
    """A refusal needs a topic with several replicas; the unit tests of partitions show it."""
    topic = broker.create_topic("replicas", configs={"min.insync.replicas": "2"})
    assert publish(broker, topic, [b"x"]) == [0]


@effect_of("message.timestamp.after.max.ms")
def test_a_record_from_too_far_in_the_future_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("future")
    tomorrow = int(time.time() * 1000) + DAY_MS
    assert refusal(broker, topic, b"x", timestamp_ms=tomorrow) is ErrorCode.INVALID_TIMESTAMP
    alter(broker, topic, {"message.timestamp.after.max.ms": str(2 * DAY_MS)})
    assert publish(broker, topic, [b"x"], timestamps_ms=[tomorrow]) == [0]


@effect_of("message.timestamp.before.max.ms")
def test_a_record_from_too_far_in_the_past_is_refused(broker: Broker) -> None:
    limit = {"message.timestamp.before.max.ms": "1000"}
    topic = broker.create_topic("past", configs=limit)
    yesterday = int(time.time() * 1000) - DAY_MS
    assert refusal(broker, topic, b"x", timestamp_ms=yesterday) is ErrorCode.INVALID_TIMESTAMP
    alter(broker, topic, {"message.timestamp.before.max.ms": str(2 * DAY_MS)})
    assert publish(broker, topic, [b"x"], timestamps_ms=[yesterday]) == [0]


@effect_of("message.timestamp.type")
def test_append_time_replaces_the_producers_timestamps(broker: Broker) -> None:
    topic = broker.create_topic("stamped")
    before = int(time.time() * 1000)
    publish(broker, topic, [b"x"], timestamps_ms=[5])
    alter(broker, topic, {"message.timestamp.type": "LogAppendTime"})
    publish(broker, topic, [b"x"], timestamps_ms=[5])
    (created, _), (appended, _) = stored_batches(broker, topic)
    assert (created.max_timestamp, created.uses_append_time) == (5, False)
    assert appended.uses_append_time
    assert before <= appended.max_timestamp <= int(time.time() * 1000)


@effect_of("compression.type")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_batches_are_stored_in_the_topics_codec(broker: Broker, codec: str) -> None:
    topic = broker.create_topic(f"stored-{codec}", configs={"compression.type": codec})
    value = wordy(2_000)
    publish(broker, topic, [value])
    ((header, records),) = stored_batches(broker, topic)
    wanted = Codec.NONE if codec == "uncompressed" else Codec[codec.upper()]
    assert Codec(header.codec) is wanted
    assert [record.value for record in records] == [value]
    alter(broker, topic, {"compression.type": "producer"})
    publish(broker, topic, [value])
    assert Codec(stored_batches(broker, topic)[1][0].codec) is Codec.NONE


@effect_of("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "1", "12"), ("zstd", "-5", "19")]
)
def test_a_higher_level_compresses_better(broker: Broker, codec: str, low: str, high: str) -> None:
    name = f"compression.{codec}.level"
    topic = broker.create_topic(f"level-{codec}", configs={"compression.type": codec, name: low})
    value = wordy(200_000)
    publish(broker, topic, [value])
    alter(broker, topic, {name: high})
    publish(broker, topic, [value])
    (quick, _), (thorough, _) = stored_batches(broker, topic)
    assert thorough.size < quick.size


@effect_of("unclean.leader.election.enable")
def test_the_rule_for_unclean_elections_is_kept_until_there_is_somebody_to_elect(
    broker: Broker,
) -> None:
    """With one replica nobody can be elected uncleanly: the key is stored and shown, no more."""
    topic = broker.create_topic("unclean", configs={"unclean.leader.election.enable": "true"})
    assert config_value(broker, topic, "unclean.leader.election.enable") == "true"


@effect_of("preallocate")
def test_disk_space_is_reserved_when_asked_for(broker: Broker) -> None:
    size = {"internal.segment.bytes": "4000000"}
    plain = broker.create_topic("plain", configs=size)
    reserved = broker.create_topic("reserved", configs={**size, "preallocate": "true"})
    for topic in (plain, reserved):
        publish(broker, topic, [b"x"])
    (small,) = partition_files(broker, plain, ".log")
    (large,) = partition_files(broker, reserved, ".log")
    assert small.stat().st_blocks * 512 < 1_000_000
    assert large.stat().st_blocks * 512 >= 4_000_000
