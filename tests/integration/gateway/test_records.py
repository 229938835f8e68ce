"""Writing and reading through the gateway, the same in both of its forms."""

import asyncio

import pytest

from headrace.client import (
    EARLIEST,
    LATEST,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    TopicPartition,
    at_time,
)
from headrace.core.errors import ErrorCode, HeadraceError, OffsetOutOfRange
from headrace.core.ids import NodeId
from headrace.gateway import Gateway, OutRecord, Produced
from headrace.network.send_request import SendRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.murmur2 import partition_for_key
from headrace.protocol.records.decode import Record


async def create(gateway: Gateway, topic: str, partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    await gateway.admin.create_topics([NewTopic(topic, partitions, configs=named)])


async def values(gateway: Gateway, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in (await gateway.read(topic, partition)).records]


async def test_a_topic_is_created_by_the_first_record(gateway: Gateway) -> None:
    assert await gateway.produce("orders", [OutRecord(b"hello")]) == [Produced(0, 0)]
    found = await gateway.read("orders", 0)
    assert [record.value for record in found.records] == [b"hello"]
    assert (found.next_offset, found.high_watermark, found.log_start_offset) == (1, 1, 0)


async def test_records_are_read_as_they_were_written(gateway: Gateway) -> None:
    await create(gateway, "orders")
    headers = (("a", b"1"), ("b", None))
    sent = [OutRecord(b"v", b"k", 0, headers, 5_000), OutRecord(None, b"k", None, (), 6_000)]
    await gateway.produce("orders", sent)
    assert (await gateway.read("orders", 0)).records == [
        Record(0, 5_000, b"k", b"v", headers),
        Record(1, 6_000, b"k", None),
    ]


async def test_a_refusal_that_nobody_is_told_costs_no_other_client(gateway: Gateway) -> None:
    """A broker hangs up on who wants no answers; all clients of a gateway share a connection."""
    await create(gateway, "orders")
    await create(gateway, "small", max_message_bytes="100")
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic_id = gateway.client.requests.session.cluster.topic_id("orders")
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[FetchTopic(topic="orders", topic_id=topic_id, partitions=[part])],
    )
    waiting = gateway.client.requests.submit(
        SendRequest(NodeId(0), request, FetchResponse, 60_000, version_max=12)
    )
    await gateway.produce("small", [OutRecord(b"v" * 1000)], acks=0)
    # On one connection this would come after it.
    assert await gateway.admin.list_topics()
    assert not waiting.done()
    await gateway.produce("orders", [OutRecord(b"v")])
    answer = await waiting
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].records


async def test_keys_decide_and_others_take_turns_over_all_calls(gateway: Gateway) -> None:
    await create(gateway, "orders", 3)
    turns = [(await gateway.produce("orders", [OutRecord(b"v")]))[0].partition for _ in range(6)]
    assert turns == [0, 1, 2, 0, 1, 2]
    keys = [b"key-%d" % number for number in range(30)]
    done = await gateway.produce("orders", [OutRecord(b"v", key) for key in keys])
    assert [each.partition for each in done] == [partition_for_key(key, 3) for key in keys]


async def test_outcomes_are_in_the_order_of_the_records(gateway: Gateway) -> None:
    await create(gateway, "orders", 2)
    places = [1, 0, 7, 1, 0]
    done = await gateway.produce("orders", [OutRecord(b"v", None, place) for place in places])
    assert [(each.partition, each.offset) for each in done] == [
        (1, 0), (0, 0), (7, -1), (1, 1), (0, 1),
    ]  # fmt: skip
    assert [each.error is None for each in done] == [True, True, False, True, True]
    assert done[2].error is not None
    assert done[2].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_refused_batch_leaves_its_neighbours_alone(gateway: Gateway) -> None:
    await create(gateway, "state", 2, cleanup_policy="compact")
    records = [OutRecord(b"v", b"k", 0), OutRecord(b"no key", None, 1), OutRecord(b"v", b"k", 0)]
    done = await gateway.produce("state", records)
    assert [each.offset for each in done] == [0, -1, 1]
    assert done[1].error is not None
    assert done[1].error.code is ErrorCode.INVALID_RECORD


async def test_more_than_a_batch_may_hold_goes_in_several(gateway: Gateway) -> None:
    await create(gateway, "small", max_message_bytes="2000")
    sent = [b"%03d" % number + b"x" * 300 for number in range(40)]
    done = await gateway.produce("small", [OutRecord(value) for value in sent])
    assert [each.offset for each in done] == list(range(40))
    assert await values(gateway, "small") == sent


async def test_a_record_that_fits_no_batch_is_refused_alone(gateway: Gateway) -> None:
    await create(gateway, "small", max_message_bytes="2000")
    done = await gateway.produce("small", [OutRecord(b"x" * 3000)])
    assert done[0].error is not None
    assert done[0].error.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [1, -1])
async def test_acks_are_answered_with_offsets(gateway: Gateway, acks: int) -> None:
    assert await gateway.produce("orders", [OutRecord(b"v")], acks=acks) == [Produced(0, 0)]


async def test_without_acks_nothing_is_promised(gateway: Gateway) -> None:
    await create(gateway, "orders")
    assert await gateway.produce("orders", [OutRecord(b"v")], acks=0) == [Produced(0, -1)]
    found = await gateway.read("orders", 0, wait_ms=5_000)
    assert [record.value for record in found.records] == [b"v"]


async def test_other_acks_are_refused(gateway: Gateway) -> None:
    """By the broker, which says so of each partition as it does to every producer."""
    [produced] = await gateway.produce("orders", [OutRecord(b"v")], acks=2)
    assert produced.error is not None
    assert produced.error.code is ErrorCode.INVALID_REQUIRED_ACKS


async def test_a_name_that_is_none_is_refused_at_once(gateway: Gateway) -> None:
    with pytest.raises(HeadraceError) as refused:
        await gateway.produce("no such name!", [OutRecord(b"v")])
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_reading_creates_no_topics(gateway: Gateway) -> None:
    with pytest.raises(HeadraceError) as refused:
        await gateway.read("nowhere", 0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await gateway.admin.list_topics() == []


async def test_a_partition_that_is_not_there_is_named(gateway: Gateway) -> None:
    await create(gateway, "orders", 2)
    with pytest.raises(HeadraceError, match="partitions 0 to 1, not 2"):
        await gateway.read("orders", 2)


async def test_a_topic_made_anew_is_written_and_read_as_the_new_one(gateway: Gateway) -> None:
    for value in (b"old", b"new"):
        await create(gateway, "orders")
        await gateway.produce("orders", [OutRecord(value)])
        assert await values(gateway, "orders") == [value]
        await gateway.admin.delete_topics(["orders"])


async def test_partitions_added_later_are_found(gateway: Gateway) -> None:
    await create(gateway, "orders")
    await gateway.produce("orders", [OutRecord(b"v")])
    await gateway.admin.create_partitions({"orders": 3})
    assert (await gateway.read("orders", 2)).records == []
    assert await gateway.partitions("orders") == 3


async def test_reading_starts_at_an_offset_or_a_time(gateway: Gateway) -> None:
    await create(gateway, "orders")
    for number in range(5):
        await gateway.produce("orders", [OutRecord(b"%d" % number, timestamp_ms=1000 * number)])

    async def first(**start: int) -> bytes | None:
        return (await gateway.read("orders", 0, **start)).records[0].value

    assert await first(offset=3) == b"3"
    assert await first(timestamp_ms=1500) == b"2"
    assert await first() == b"0"
    late = await gateway.read("orders", 0, timestamp_ms=9_999)
    assert (late.records, late.next_offset) == ([], 5)


async def test_what_is_read_is_bounded_and_goes_on_where_it_stopped(gateway: Gateway) -> None:
    await gateway.produce("orders", [OutRecord(b"%d" % number) for number in range(25)])
    found: list[bytes | None] = []
    offset = 0
    while True:
        result = await gateway.read("orders", 0, offset=offset, max_records=10)
        if not result.records:
            break
        assert len(result.records) <= 10
        found += [record.value for record in result.records]
        offset = result.next_offset
    assert found == [b"%d" % number for number in range(25)]


async def test_reading_no_records_tells_where_they_are(gateway: Gateway) -> None:
    await gateway.produce("orders", [OutRecord(b"v")] * 3)
    result = await gateway.read("orders", 0, offset=1, max_records=0)
    assert (result.records, result.next_offset, result.high_watermark) == ([], 1, 3)


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (OutRecord(b"v", timestamp_ms=-5), ErrorCode.INVALID_TIMESTAMP),
        (OutRecord(b"v", timestamp_ms=2**70), ErrorCode.INVALID_TIMESTAMP),
        (OutRecord(b"v", headers=[("\ud800", None)]), ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_no_batch_can_hold_is_refused(
    gateway: Gateway, record: OutRecord, code: ErrorCode
) -> None:
    for key in (None, "\ud800"):
        with pytest.raises(HeadraceError) as refused:
            await gateway.produce("orders", [OutRecord(b"v"), record], key=key)
        assert refused.value.code is code


async def test_an_offset_out_of_range_says_what_there_is(gateway: Gateway) -> None:
    await gateway.produce("orders", [OutRecord(b"v")] * 3)
    await gateway.admin.delete_records({TopicPartition("orders", 0): 1})
    for offset in (0, 9):
        with pytest.raises(OffsetOutOfRange, match="it holds 1 to 2"):
            await gateway.read("orders", 0, offset=offset)


async def test_a_reader_may_wait_for_what_is_to_come(gateway: Gateway) -> None:
    await create(gateway, "orders")
    waiting = asyncio.create_task(gateway.read("orders", 0, offset=0, wait_ms=20_000))
    # Others are served while it waits.
    assert (await gateway.read("orders", 0)).records == []
    await gateway.produce("orders", [OutRecord(b"at last")])
    assert [record.value for record in (await waiting).records] == [b"at last"]


async def test_a_reader_that_gives_up_leaves_no_trace(gateway: Gateway) -> None:
    await create(gateway, "orders")
    waiting = asyncio.create_task(gateway.read("orders", 0, offset=0, wait_ms=20_000))
    assert (await gateway.read("orders", 0)).records == []
    waiting.cancel()
    await asyncio.wait([waiting])
    await gateway.produce("orders", [OutRecord(b"v")])
    assert await values(gateway, "orders") == [b"v"]


async def test_a_follower_reads_what_is_there_and_what_comes(gateway: Gateway) -> None:
    await create(gateway, "orders", 2)
    await gateway.produce("orders", [OutRecord(b"a", None, 0), OutRecord(b"b", None, 1)])
    starts = {TopicPartition("orders", 0): EARLIEST, TopicPartition("orders", 1): LATEST}
    seen: list[tuple[int, bytes | None]] = []
    async with gateway.stream(starts) as follower:
        async for batch in follower:
            seen += [(w.partition, r.value) for w, records in batch.items() for r in records]
            if len(seen) == 1:
                await gateway.produce("orders", [OutRecord(b"c", None, 1)])
            if len(seen) == 2:
                break
        assert seen == [(0, b"a"), (1, b"c")]
        assert await follower.positions() == {
            TopicPartition("orders", 0): 1,
            TopicPartition("orders", 1): 2,
        }
        assert await follower.poll(20) == {}


async def test_places_are_found_by_meaning(gateway: Gateway) -> None:
    where = TopicPartition("orders", 0)
    await gateway.produce("orders", [OutRecord(b"v", timestamp_ms=1000 * n) for n in range(3)])
    assert await gateway.offset_of(where, EARLIEST) == 0
    assert await gateway.offset_of(where, LATEST) == 3
    assert await gateway.offset_of(where, at_time(1001)) == 2
    assert await gateway.offset_of(where, at_time(5000)) == 3


async def test_rules_of_the_topic_hold_here_too(gateway: Gateway) -> None:
    await create(gateway, "orders")
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    change = ConfigChange("message.timestamp.type", "LogAppendTime")
    await gateway.admin.alter_configs({resource: [change]})
    await gateway.produce("orders", [OutRecord(b"v", timestamp_ms=1)])
    assert (await gateway.read("orders", 0)).records[0].timestamp > 1_700_000_000_000


# -- each record has its own outcome


async def test_a_record_that_is_too_large_fails_alone(gateway: Gateway) -> None:
    """Whatever stands before or behind it, and in however many batches."""
    await create(gateway, "orders", 1, max_message_bytes="1000")
    large = OutRecord(b"x" * 2_000)
    records = [large, OutRecord(b"a"), large, OutRecord(b"b"), large]
    done = await gateway.produce("orders", records)
    assert [each.offset for each in done] == [-1, 0, -1, 1, -1]
    codes = [None if each.error is None else each.error.code for each in done]
    assert codes == [ErrorCode.MESSAGE_TOO_LARGE, None] * 2 + [ErrorCode.MESSAGE_TOO_LARGE]
    assert await values(gateway, "orders") == [b"a", b"b"]


async def test_an_invalid_record_fails_alone(gateway: Gateway) -> None:
    """A compacted topic takes no record without a key."""
    await create(gateway, "orders", 1, cleanup_policy="compact")
    keyless = OutRecord(b"keyless")
    records = [OutRecord(b"a", b"k"), keyless, OutRecord(b"b", b"k"), keyless]
    done = await gateway.produce("orders", records)
    assert [each.offset for each in done] == [0, -1, 1, -1]
    assert {each.error.code for each in done if each.error} == {ErrorCode.INVALID_RECORD}
    assert await values(gateway, "orders") == [b"a", b"b"]


async def test_what_a_key_cannot_vouch_for_is_said_not_to_be_tried(gateway: Gateway) -> None:
    """Sequences have no holes: behind a refused batch nothing can be written under the key."""
    await create(gateway, "orders", 1, max_message_bytes="1000")
    records = [OutRecord(b"a"), OutRecord(b"x" * 2_000), OutRecord(b"b")]
    for _ in range(2):
        done = await gateway.produce("orders", records, key="k")
        assert [each.offset for each in done] == [0, -1, -1]
        codes = [None if each.error is None else each.error.code for each in done]
        assert codes == [None, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OPERATION_NOT_ATTEMPTED]
    assert await values(gateway, "orders") == [b"a"]
