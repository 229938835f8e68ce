"""Traps that real clients fall into with records: ids, sessions, limits, epochs, codecs.

Each test is named by the number of its trap in the project's list of wire facts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from headrace.core.errors import ErrorCode
from headrace.protocol.api_keys import APIS, ApiKey
from headrace.protocol.messages.fetch import FetchResponse, PartitionData
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
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from headrace.protocol.records.header import crc_matches, iterate_headers
from tests.differential.peer import Peer
from tests.differential.scripts import fetch_request, fill, produce_request
from tests.integration.conftest import BrokerMaker
from tests.support.batches import LOG_APPEND_TIME, Batch, values
from tests.support.brokers import BrokerProcess

_STRANGER = uuid.UUID(int=4711)


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[Peer]:
    opened = Peer(broker)
    yield opened
    opened.disconnect()


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:10]}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def produce(
    peer: Peer, version: int, topic: str, topic_id: uuid.UUID, batch: bytes
) -> PartitionProduceResponse:
    request = produce_request(version, topic, topic_id, {0: batch})
    return peer.quietly(request, version, ProduceResponse).responses[0].partition_responses[0]


def fetch(
    peer: Peer, version: int, topic: str, topic_id: uuid.UUID, **options: Any
) -> FetchResponse:
    partitions = options.pop("partitions", {0: 0})
    request = fetch_request(version, topic, topic_id, partitions, **options)
    return peer.quietly(request, version, FetchResponse)


def first(answer: FetchResponse) -> PartitionData:
    return answer.responses[0].partitions[0]


def test_trap_15_topics_are_addressed_by_id_and_a_new_topic_has_a_new_one(peer: Peer) -> None:
    topic, batch = fresh("ids"), Batch().encode()
    old = peer.create(topic)
    assert produce(peer, 13, topic, old, batch).error_code == 0
    assert produce(peer, 13, topic, _STRANGER, batch).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    stranger = first(fetch(peer, 13, topic, _STRANGER))
    assert stranger.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    peer.delete(topic)
    new = peer.create(topic)
    assert new != old
    assert produce(peer, 13, topic, old, batch).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(peer, 13, topic, new, batch).base_offset == 0


@pytest.mark.parametrize("version", [8, 9, 12, 13])
def test_trap_16_only_the_bad_records_of_a_batch_are_named(peer: Peer, version: int) -> None:
    topic = fresh("keys")
    topic_id = peer.create(topic, cleanup_policy="compact")
    mixed = [(b"a", b"1"), (None, b"2"), (b"c", b"3"), (None, b"4")]
    found = produce(peer, version, topic, topic_id, Batch(mixed).encode())
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in found.record_errors] == [1, 3]
    assert produce(peer, version, topic, topic_id, Batch(values(3)).encode()).base_offset == 0


def test_trap_17_the_topics_own_limit_counts(peer: Peer) -> None:
    topic = fresh("limit")
    topic_id = peer.create(topic, max_message_bytes="500")
    large, small = Batch([(None, b"x" * 600)]).encode(), Batch([(None, b"x" * 100)]).encode()
    assert produce(peer, 12, topic, topic_id, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(peer, 12, topic, topic_id, small).error_code == 0


def test_trap_17_one_whole_batch_comes_however_small_the_limit(peer: Peer) -> None:
    topic = fresh("whole")
    topic_id = peer.create(topic)
    batch = Batch([(None, b"x" * 5000)]).encode()
    fill(peer, topic, topic_id, 0, batch, batch)
    for limits in ({"max_bytes": 10}, {"partition_max_bytes": 10}):
        records = first(fetch(peer, 12, topic, topic_id, **limits)).records
        assert records is not None
        assert len(bytes(records)) >= len(batch)


def test_trap_17_no_partition_starves_under_a_small_limit(peer: Peer) -> None:
    """A client asks for four partitions, each time from where it is, and room for one batch."""
    topic = fresh("fair")
    topic_id = peer.create(topic, 4)
    batch = Batch([(None, b"x" * 1000)]).encode()
    for partition in range(4):
        fill(peer, topic, topic_id, partition, *[batch] * 6)
    positions = dict.fromkeys(range(4), 0)
    served: list[int] = []
    session, epoch = 0, 0
    for _ in range(24):
        answer = fetch(
            peer,
            12,
            topic,
            topic_id,
            partitions=positions if epoch == 0 else {served[-1]: positions[served[-1]]},
            max_bytes=len(batch),
            session=(session, epoch),
        )
        session, epoch = answer.session_id, epoch + 1
        for found in answer.responses[0].partitions:
            if found.records:
                served.append(found.partition_index)
                positions[found.partition_index] += 1
    assert positions == dict.fromkeys(range(4), 6)
    assert set(served[:8]) == {0, 1, 2, 3}


def test_trap_18_a_session_answers_only_what_has_changed(peer: Peer) -> None:
    topic = fresh("session")
    topic_id = peer.create(topic, 3)
    for partition in range(3):
        fill(peer, topic, topic_id, partition, Batch().encode())
    ends = dict.fromkeys(range(3), 1)
    opened = fetch(peer, 13, topic, topic_id, partitions=ends, session=(0, 0))
    assert opened.session_id > 0
    session = opened.session_id
    nothing = fetch(peer, 13, topic, topic_id, partitions={}, session=(session, 1))
    assert nothing.responses == []
    fill(peer, topic, topic_id, 1, Batch().encode())
    changed = fetch(peer, 13, topic, topic_id, partitions={}, session=(session, 2))
    assert [each.partition_index for each in changed.responses[0].partitions] == [1]
    fill(peer, topic, topic_id, 2, Batch().encode())
    forgotten = fetch(peer, 13, topic, topic_id, partitions={}, session=(session, 3), forget=[1, 2])
    assert forgotten.responses == []


def test_trap_18_wrong_sessions_and_epochs_have_their_own_errors(peer: Peer) -> None:
    topic = fresh("wrong")
    topic_id = peer.create(topic)
    session = fetch(peer, 12, topic, topic_id, session=(0, 0)).session_id
    out_of_turn = fetch(peer, 12, topic, topic_id, session=(session, 7))
    assert out_of_turn.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = fetch(peer, 12, topic, topic_id, session=(session + 12345, 1))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_id = fetch(peer, 13, topic, topic_id, session=(session, 1))
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    # Also with nothing to say: a Java consumer whose topics have their ids by now does this.
    idle = fetch(peer, 18, topic, topic_id, partitions={}, session=(session, 1))
    assert (idle.error_code, idle.responses) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])


def test_trap_18_a_session_is_told_of_a_topic_that_is_gone_by_the_name_it_knows(
    peer: Peer,
) -> None:
    topic = fresh("gone")
    topic_id = peer.create(topic)
    session = fetch(peer, 13, topic, topic_id, session=(0, 0)).session_id
    peer.delete(topic)
    answer = fetch(peer, 13, topic, topic_id, partitions={}, session=(session, 1))
    assert first(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_trap_18_the_cache_of_sessions_is_bounded(make_broker: BrokerMaker) -> None:
    broker = make_broker({"max.incremental.fetch.session.cache.slots": "8"})
    broker.start()
    peer = Peer(broker)
    topic_id = peer.create("bounded")
    sessions = [fetch(peer, 12, "bounded", topic_id, session=(0, 0)).session_id for _ in range(30)]
    # A full cache answers without a session, or drops an older one: it never grows.
    alive = [
        session
        for session in sessions
        if session
        and fetch(peer, 12, "bounded", topic_id, partitions={}, session=(session, 1)).error_code
        == 0
    ]
    assert 1 <= len(alive) <= 8
    peer.disconnect()


def list_offset(peer: Peer, version: int, topic: str, timestamp: int, epoch: int = -1) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    return peer.quietly(request, version, ListOffsetsResponse).topics[0].partitions[0]


def test_trap_19_every_special_timestamp_has_its_meaning(peer: Peer) -> None:
    topic, base = fresh("offsets"), now_ms() - 100_000
    topic_id = peer.create(topic)
    for at in (0, 50_000, 20_000):
        fill(peer, topic, topic_id, 0, Batch(values(2), base_timestamp_ms=base + at).encode())
    latest, earliest, newest, local, tiered, pending = range(-1, -7, -1)
    for version, timestamp, offset, at in (
        (1, latest, 6, -1),
        (1, earliest, 0, -1),
        (7, newest, 2, base + 50_000),
        (8, local, 0, -1),
        (9, tiered, -1, -1),
        (11, pending, -1, -1),
        (1, base, 0, base),
        (1, base + 1, 2, base + 50_000),
        (11, base + 50_001, -1, -1),
    ):
        found = list_offset(peer, version, topic, timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, at), timestamp
    assert list_offset(peer, 4, topic, latest).leader_epoch == 0
    unknown = list_offset(peer, 4, topic, latest, epoch=9)
    assert unknown.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_trap_20_epochs_grow_with_each_start_and_fence(make_broker: BrokerMaker) -> None:
    broker = make_broker({})
    broker.start()
    peer = Peer(broker)
    topic_id = peer.create("fenced")
    fill(peer, "fenced", topic_id, 0, Batch(values(3)).encode())
    before = _leader_epoch(peer, "fenced")
    peer.disconnect()
    broker.restart()
    peer.topic_id("fenced")
    peer.wait_until_led("fenced", [0])
    after = _leader_epoch(peer, "fenced")
    assert after > before
    for epoch, code in (
        (before, ErrorCode.FENCED_LEADER_EPOCH),
        (after, ErrorCode.NONE),
        (after + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        answer = first(fetch(peer, 9, "fenced", topic_id, leader_epoch=epoch))
        assert answer.error_code == code
    fill(peer, "fenced", topic_id, 0, Batch(values(2)).encode())
    assert [_end_of_epoch(peer, "fenced", epoch) for epoch in (before, after)] == [
        (before, 3),
        (after, 5),
    ]
    diverged = first(
        fetch(peer, 12, "fenced", topic_id, partitions={0: 5}, last_fetched_epoch=before)
    )
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (before, 3)
    peer.disconnect()


def _leader_epoch(peer: Peer, topic: str) -> int:
    asked = [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    return peer.quietly(request, 12, MetadataResponse).topics[0].partitions[0].leader_epoch


def _end_of_epoch(peer: Peer, topic: str, epoch: int) -> tuple[int, int]:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    # Version 2 is the one librdkafka sends.
    answer = peer.quietly(request, 2, OffsetForLeaderEpochResponse)
    found = answer.topics[0].partitions[0]
    return found.leader_epoch, found.end_offset


def test_trap_21_only_offset_and_epoch_are_rewritten(peer: Peer) -> None:
    topic = fresh("bytes")
    topic_id = peer.create(topic)
    batch = Batch(values(3)).encode()
    fill(peer, topic, topic_id, 0, batch, batch)
    stored = bytes(first(fetch(peer, 12, topic, topic_id)).records or b"")
    second = stored[len(batch) :]
    assert int.from_bytes(second[:8], "big") == 3
    # From the magic byte on (behind the leader epoch) nothing has changed.
    assert second[16:] == batch[16:]
    magic_1 = produce(peer, 12, topic, topic_id, Batch(magic=1).encode())
    assert magic_1.error_code != 0


def test_trap_21_append_time_sets_its_bit_and_a_right_checksum(peer: Peer) -> None:
    topic, start = fresh("stamped"), now_ms()
    topic_id = peer.create(topic, message_timestamp_type="LogAppendTime")
    told = produce(peer, 12, topic, topic_id, Batch(values(3)).encode())
    assert start - 1000 <= told.log_append_time_ms <= now_ms() + 1000
    stored = memoryview(bytes(first(fetch(peer, 12, topic, topic_id)).records or b""))
    ((position, header),) = iterate_headers(stored)
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == told.log_append_time_ms
    assert crc_matches(stored, position, header)


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_trap_22_the_broker_recompresses_from_both_snappy_framings(
    broker: BrokerProcess, peer: Peer, target: str
) -> None:
    """librdkafka writes one raw snappy block, kafka-python the framed stream of the Java client."""
    topic = fresh("codec")
    peer.create(topic, compression_type=target)
    raw = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "snappy"})
    expected = [f"value {number} ".encode() * 30 for number in range(40)]
    for value in expected[:20]:
        raw.produce(topic, value, partition=0)
    assert raw.flush(30) == 0
    framed = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, compression_type="snappy", linger_ms=20
    )
    sent = [framed.send(topic, value, partition=0) for value in expected[20:]]
    assert [each.get(30).offset for each in sent] == list(range(20, 40))
    framed.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < 40 and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend(record.value for record in records)
    consumer.close()
    assert found == expected
    log = (broker.partition_dir(topic) / f"{0:020}.log").read_bytes()
    codecs = {header.attributes & 7 for _, header in iterate_headers(memoryview(log))}
    wanted = ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(target)
    assert codecs == {wanted}


def test_trap_24_nobody_is_throttled(peer: Peer) -> None:
    topic = fresh("throttle")
    topic_id = peer.create(topic)
    for version in range(APIS[ApiKey.FETCH].lowest_version, APIS[ApiKey.FETCH].highest_version + 1):
        assert fetch(peer, version, topic, topic_id).throttle_time_ms == 0
    request = produce_request(9, topic, topic_id, {0: Batch().encode()})
    assert peer.quietly(request, 9, ProduceResponse).throttle_time_ms == 0
