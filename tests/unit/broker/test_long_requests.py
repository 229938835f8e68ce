"""No request costs more than its length: every advertised API with 10,000 entries in each array.

CPU time of the event loop's thread is what counts, not the clock, so that a busy machine changes
nothing. What takes less than `PLAINLY_QUICK` needs no further look; the others are compared with
a request of a tenth of the length: ten times as long is linear, a hundred times is quadratic.
"""

import asyncio
from pathlib import Path

import pytest

from headrace.broker.routes import ROUTES
from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.node.node import Node
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import encode_request
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.cpu_time import cpu_time
from tests.support.long_requests import Entries, Known, LongRequests, advertised_arrays
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

MANY, FEW = 10_000, 1_000
PLAINLY_QUICK = 0.5
LINEAR_UP_TO = 30.0
SECONDS_MAX = 10.0
# A refusal that lists what there is takes some of these; nothing is described again and again.
ANSWER_BYTES_PER_ENTRY = 600
TOPICS, PARTITIONS = 50, 4
PRODUCERS = 50

ARRAYS: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
for _key, _version, _path in advertised_arrays():
    ARRAYS.setdefault(_key, []).append((_version, _path))


async def known_things(node: Node, client: RawClient) -> Known:
    """Topics, one with many producers; a group with a talkative member, one with a long remark."""
    controller = node.controller
    assert controller is not None
    names = [f"known-{number}" for number in range(TOPICS)]
    await controller.submit(
        CreateTopics(tuple(TopicToCreate(name, PARTITIONS, 1) for name in names))
    )
    for number in range(PRODUCERS):
        batch = encode_batch(
            [Record(0, 1_000, None, b"v", ())],
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
        )
        produced = await client.call(produce_to(names[0], bytes(batch)), 9)
        assert isinstance(produced, ProduceResponse)
        assert produced.responses[0].partition_responses[0].error_code == 0
    found = await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert isinstance(found, FindCoordinatorResponse)
    assert found.coordinators[0].error_code == 0
    committed = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata="x" * 4_000
    )
    topic = OffsetCommitRequestTopic(name=names[0], partitions=[committed])
    stored = await client.call(
        OffsetCommitRequest(
            group_id="committer", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        ),
        8,
    )
    assert isinstance(stored, OffsetCommitResponse)
    assert stored.topics[0].partitions[0].error_code == 0
    await join_talking_much(client)
    await consume(client, names)
    topics = controller.image.topics
    return Known(
        [(name, topics[name].id) for name in names], PARTITIONS, "g", "committer", "consumers"
    )


def produce_to(topic: str, batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


async def consume(client: RawClient, topics: list[str]) -> None:
    """Make a group of the consumer protocol that reads all topics."""
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="reads-much",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )
    joined = await client.call(heartbeat, 1)
    assert isinstance(joined, ConsumerGroupHeartbeatResponse)
    assert joined.error_code == 0


async def join_talking_much(client: RawClient) -> None:
    """Bring a classic member into the group, with a long subscription and assignment."""
    joined = await client.call(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(50_000))],
        ),
        3,
    )
    assert isinstance(joined, JoinGroupResponse)
    synced = await client.call(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(50_000))
            ],
        ),
        1,
    )
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == 0


async def cost(client: RawClient, frame: bytes) -> tuple[float, int]:
    """CPU seconds of this thread, and the size of the answer (-1 if the broker hung up)."""
    client.send_bytes(frame)
    await asyncio.sleep(0)  # what our own side sends is not the broker's
    with cpu_time() as taken:
        try:
            size = len(await client.receive_frame())
        except asyncio.IncompleteReadError:
            size = -1
        return taken(), size


@pytest.mark.parametrize("api_key", ARRAYS, ids=lambda key: ApiKey(key).name)
async def test_a_request_with_many_entries_costs_no_more_than_its_length(
    tmp_path: Path, api_key: int
) -> None:
    cls = ROUTES[api_key].load().request_class
    async with running_node(
        tmp_path,
        auto_create_topics_enable="false",
        group_initial_rebalance_delay_ms="0",
        log_flush_policy="os",
        offsets_topic_num_partitions="1",
    ) as node:
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as client:
            made = LongRequests(await known_things(node, client))
        for version, path in ARRAYS[api_key]:
            asked: set[bytes] = set()
            for entries in Entries:

                def frame(count: int) -> bytes:
                    request = made.request(cls, version, path, count, entries)  # noqa: B023
                    return encode_request(request, version, 1, "long")  # noqa: B023

                async def costs(frame: bytes) -> tuple[float, int]:
                    async with RawClient(host, port) as client:
                        return await cost(client, frame)

                many = frame(MANY)
                if many in asked:
                    continue  # some kinds of entries make no difference to this array
                asked.add(many)
                what = f"v{version} {'.'.join(path)} {entries.value}"
                seconds, answered = await costs(many)
                assert answered >= 0, f"{what}: no answer"
                assert answered <= MANY * ANSWER_BYTES_PER_ENTRY, what
                assert seconds < SECONDS_MAX, what
                if seconds > PLAINLY_QUICK:
                    few, _ = await costs(frame(FEW))
                    assert seconds < LINEAR_UP_TO * few, f"{what}: {few:.3f} s, {seconds:.3f} s"
