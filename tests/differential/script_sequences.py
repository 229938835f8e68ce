"""Several steps in a row: what one request changes, the next ones must show."""

from __future__ import annotations

import time

from headrace.protocol.messages import incremental_alter_configs as step
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import ProduceResponse
from tests.differential.peer import Peer
from tests.differential.scripts import fetch_request, fill, produce_request, script
from tests.support.batches import Batch, values


def _list(topic: str, *timestamps: int) -> ListOffsetsRequest:
    asked = [
        ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        for number, timestamp in enumerate(timestamps)
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
    )


@script
def a_topic_made_again(peer: Peer) -> None:
    old = peer.create("again")
    batch = Batch(values(2)).encode()
    fill(peer, "again", old, 0, batch, batch)
    peer.delete("again")
    peer.ask(produce_request(13, "again", old, {0: batch}), 13, "old id, deleted: produce")
    peer.ask(fetch_request(13, "again", old, {0: 0}), 13, "old id, deleted: fetch")
    peer.ask(fetch_request(12, "again", old, {0: 0}), 12, "deleted: fetch by name")
    new = peer.create("again", 2)
    assert new != old
    peer.ask(produce_request(13, "again", old, {0: batch}), 13, "old id: produce")
    peer.ask(fetch_request(13, "again", old, {0: 0}), 13, "old id: fetch")
    peer.ask(produce_request(13, "again", new, {0: batch}), 13, "new id: produce from zero")
    peer.ask(fetch_request(13, "again", new, {0: 0, 1: 0}), 13, "new id: fetch")
    by_name = MetadataRequest(
        topics=[MetadataRequestTopic(name="again")], allow_auto_topic_creation=False
    )
    peer.ask(by_name, 12, "metadata by name")
    by_old_id = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=old, name=None)], allow_auto_topic_creation=False
    )
    peer.ask(by_old_id, 12, "metadata by old id")


@script
def a_session_sees_its_topic_made_again(peer: Peer) -> None:
    old = peer.create("session-again")
    fill(peer, "session-again", old, 0, Batch().encode())
    opened = peer.ask(fetch_request(13, "", old, {0: 0}, session=(0, 0)), 13, "opened")
    assert isinstance(opened, FetchResponse)
    peer.delete("session-again")
    new = peer.create("session-again")
    session = opened.session_id
    peer.ask(fetch_request(13, "", old, {}, session=(session, 1)), 13, "the old id goes on")
    peer.ask(fetch_request(13, "", new, {0: 0}, session=(session, 2)), 13, "the new id joins")


@script
def records_deleted_and_read_around(peer: Peer) -> None:
    topic_id = peer.create("trimmed")
    fill(peer, "trimmed", topic_id, 0, *(Batch(values(3)).encode() for _ in range(4)))
    trim = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="trimmed", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)]
            )
        ],
        timeout_ms=10_000,
    )
    peer.ask(trim, 2, "to five")
    for offset in (0, 4, 5, 6, 12):
        request = fetch_request(12, "trimmed", topic_id, {0: offset})
        peer.ask(request, 12, f"read at {offset}")
    for label, timestamp in (("earliest", -2), ("latest", -1), ("newest", -3), ("at zero", 0)):
        peer.ask(_list("trimmed", timestamp), 8, label)
    peer.ask(produce_request(8, "trimmed", topic_id, {0: Batch().encode()}), 8, "goes on")


@script
def a_topic_grows_and_is_used(peer: Peer) -> None:
    topic_id = peer.create("growing")
    opened = peer.ask(fetch_request(13, "", topic_id, {0: 0}, session=(0, 0)), 13, "opened")
    assert isinstance(opened, FetchResponse)
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="growing", count=3)],
        timeout_ms=10_000,
        validate_only=False,
    )
    peer.quietly(grow, 3, CreatePartitionsResponse)
    peer.wait_until_led("growing", range(3))
    peer.ask(produce_request(12, "growing", topic_id, {2: Batch().encode()}), 12, "to the new one")
    joined = fetch_request(13, "", topic_id, {2: 0}, session=(opened.session_id, 1))
    peer.ask(joined, 13, "the session takes it in")
    peer.ask(_list("growing", -1, -1, -1), 7, "ends of all three")


@script
def a_limit_changes_while_in_use(peer: Peer) -> None:
    topic_id = peer.create("tightened", 2)
    large = Batch([(None, b"x" * 500)]).encode()
    request = produce_request(12, "tightened", topic_id, {0: large})
    # Tried on another partition: how many get in before a change is felt is anyone's guess.
    probe = produce_request(12, "tightened", topic_id, {1: large})
    peer.ask(request, 12, "fits")
    _set(peer, "tightened", "max.message.bytes", "300")
    _until(peer, probe, error_code=10)
    peer.ask(request, 12, "too large now")
    _set(peer, "tightened", "max.message.bytes", "3000")
    _until(peer, probe, error_code=0)
    peer.ask(request, 12, "fits again")
    peer.ask(fetch_request(12, "tightened", topic_id, {0: 0}), 12, "what was let in")


def _set(peer: Peer, topic: str, key: str, value: str) -> None:
    entry = step.AlterableConfig(name=key, config_operation=0, value=value)
    one = step.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[entry])
    request = step.IncrementalAlterConfigsRequest(resources=[one], validate_only=False)
    answer = peer.quietly(request, 1, step.IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


def _until(peer: Peer, request: object, error_code: int) -> None:
    """Send a produce until it is answered with this code: a change may take a moment."""
    from headrace.protocol.messages.produce import ProduceRequest

    assert isinstance(request, ProduceRequest)
    deadline = time.monotonic() + 10
    while True:
        answer = peer.quietly(request, 12, ProduceResponse)
        if answer.responses[0].partition_responses[0].error_code == error_code:
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


@script
def a_restart_forgets_nothing(peer: Peer) -> None:
    """Last of all scripts: both brokers stop in order and start again."""
    topic_id = peer.create("kept", 2)
    producer = peer.producer_id()
    # Kafka forgets a producer by the age of its batches, so these are of today.
    today_ms = time.time_ns() // 1_000_000
    first = Batch(
        values(2),
        base_timestamp_ms=today_ms,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )
    fill(peer, "kept", topic_id, 0, first.encode(), first.but(base_sequence=2).encode())
    peer.disconnect()
    peer.broker.restart()
    assert peer.topic_id("kept") == topic_id
    peer.wait_until_led("kept", range(2))
    again = produce_request(12, "kept", topic_id, {0: first.but(base_sequence=2).encode()})
    peer.ask(again, 12, "a duplicate is still known")
    gap = produce_request(12, "kept", topic_id, {0: first.but(base_sequence=7).encode()})
    peer.ask(gap, 12, "a gap is still seen")
    next_one = produce_request(12, "kept", topic_id, {0: first.but(base_sequence=4).encode()})
    peer.ask(next_one, 12, "the sequence goes on")
    peer.ask(_list("kept", -1, -1), 3, "ends")
    asked = TopicRequest(name="kept", partition_indexes=[0])
    peer.ask(DescribeProducersRequest(topics=[asked]), 0, "producers")
