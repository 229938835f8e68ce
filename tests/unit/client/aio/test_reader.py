"""The asyncio reader in virtual time."""

import asyncio

import pytest

from headrace.client import (
    EARLIEST,
    AsyncClient,
    ClientClosed,
    ReaderSettings,
    TopicPartition,
)
from headrace.client.core.lookups import MissingTopic
from headrace.core.errors import ErrorCode, OffsetOutOfRange
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from tests.simulation.loop import VirtualLoop
from tests.support.client_core import TOPIC_ID, metadata
from tests.support.scripted_broker import HANG_UP, Instead, ScriptedBroker
from tests.unit.client.aio.conftest import Run

T0 = TopicPartition("t", 0)
PER_FETCH = 10


class Shelf:
    """The broker's side of fetch: one partition whose records begin at `start`."""

    def __init__(self, broker: ScriptedBroker, start: int, end: int) -> None:
        self.broker = broker
        self.start, self.end = start, end
        self.hang_ups = 0
        broker.on(FetchRequest, self._fetch)
        broker.on(ListOffsetsRequest, self._offsets)

    def _fetch(self, request: FetchRequest) -> Message | Instead:
        if self.hang_ups:
            self.hang_ups -= 1
            return HANG_UP
        (part,) = request.topics[0].partitions
        first = part.fetch_offset
        bad = not self.start <= first <= self.end
        last = min(first + PER_FETCH, self.end)
        records = [Record(offset, 1, None, b"%d" % offset) for offset in range(first, last)]
        data = PartitionData(
            partition_index=0,
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE if bad else 0,
            high_watermark=self.end,
            records=encode_batch(records) if records and not bad else b"",
        )
        topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])
        return FetchResponse(responses=[topic])

    def _offsets(self, request: ListOffsetsRequest) -> Message:
        timestamp = request.topics[0].partitions[0].timestamp
        part = ListOffsetsPartitionResponse(
            partition_index=0, offset=self.end if timestamp == -1 else self.start, timestamp=-1
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


async def opened(start: int = 0, end: int = 35) -> tuple[Shelf, AsyncClient]:
    broker = ScriptedBroker(9092)
    await broker.start()
    return Shelf(broker, start, end), AsyncClient("broker:9092")


def test_records_are_read_in_order_and_to_the_end(run: Run) -> None:
    async def story() -> None:
        shelf, client = await opened(start=5)
        async with client, client.reader({T0: EARLIEST}) as reader:
            assert await reader.position(T0) == 5
            offsets: list[int] = []
            while len(offsets) < 30:
                offsets += [record.offset for record in (await reader.poll()).get(T0, [])]
            assert offsets == list(range(5, 35))
            assert await reader.position(T0) == 35
            assert reader.high_watermark(T0) == 35
            assert shelf.broker.connections == 3, "to bootstrap, to the leader, and to fetch"

    run(story())


def test_the_next_fetch_is_on_its_way_while_records_are_handed_out(run: Run) -> None:
    async def story() -> None:
        shelf, client = await opened()
        async with client, client.reader({T0: 0}) as reader:
            first = await reader.poll()
            assert len(first[T0]) == PER_FETCH
            await asyncio.sleep(1)
            assert len(shelf.broker.requests(FetchRequest)) >= 2

    run(story())


def test_a_poll_with_nothing_to_read_ends_in_time(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        _, client = await opened(end=0)
        async with client, client.reader({T0: 0}) as reader:
            assert await reader.poll(timeout_ms=300) == {}
            assert 0.3 <= loop.time() < 0.35
            assert await reader.fetch(timeout_ms=0) == []

    run(story())


def test_polling_without_waiting_gets_there_too(run: Run) -> None:
    async def story() -> None:
        _, client = await opened()
        async with client, client.reader({T0: EARLIEST}) as reader:
            for _ in range(100):
                if await reader.poll(timeout_ms=0):
                    return
                await asyncio.sleep(0.001)
            raise AssertionError("no record came")

    run(story())


def test_iteration_waits_for_what_is_still_to_come(run: Run) -> None:
    async def story() -> None:
        shelf, client = await opened(end=2)
        asyncio.get_running_loop().call_later(30, setattr, shelf, "end", 4)
        offsets = []
        async with client, client.reader({T0: 0}) as reader:
            async for record in reader:
                assert (record.topic, record.partition) == T0
                offsets.append(record.offset)
                if len(offsets) == 4:
                    break
        assert offsets == [0, 1, 2, 3]

    run(story())


def test_a_broken_connection_neither_skips_nor_repeats(run: Run) -> None:
    async def story() -> None:
        shelf, client = await opened()
        async with client, client.reader({T0: 0}) as reader:
            offsets = [record.offset for record in (await reader.poll())[T0]]
            shelf.hang_ups = 3
            while len(offsets) < 35:
                offsets += [record.offset for record in (await reader.poll()).get(T0, [])]
            assert offsets == list(range(35))

    run(story())


def test_an_offset_that_is_gone_is_an_error_or_a_move_as_set(run: Run) -> None:
    async def story() -> None:
        _, client = await opened(start=20)
        async with client:
            async with client.reader({T0: 3}) as reader:
                with pytest.raises(OffsetOutOfRange, match="offset 3 does not exist"):
                    await reader.poll()
                reader.seek(T0, 30)
                assert (await reader.poll())[T0][0].offset == 30
            async with client.reader({T0: 3}, ReaderSettings(offset_reset="earliest")) as reader:
                assert (await reader.poll())[T0][0].offset == 20
            async with client.reader({T0: 99}, ReaderSettings(offset_reset="latest")) as reader:
                assert await reader.poll(timeout_ms=100) == {}
                assert await reader.position(T0) == 35

    run(story())


def test_a_topic_that_is_not_there_is_named(run: Run) -> None:
    async def story() -> None:
        shelf, client = await opened()
        missing = metadata(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        shelf.broker.on(MetadataRequest, lambda _: missing)
        async with client, client.reader({T0: 0}) as reader:
            with pytest.raises(MissingTopic, match="'t' does not exist"):
                await reader.poll()

    run(story())


def test_an_unreachable_cluster_makes_a_poll_end_in_time(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        async with AsyncClient("broker:9999") as client, client.reader({T0: 0}) as reader:
            assert await reader.poll(timeout_ms=700) == {}
            assert 0.7 <= loop.time() < 0.75

    run(story())


def test_paused_partitions_stay_silent_until_resumed(run: Run) -> None:
    async def story() -> None:
        _, client = await opened()
        async with client, client.reader({T0: 0}) as reader:
            reader.pause(T0)
            assert await reader.poll(timeout_ms=100) == {}
            reader.resume(T0)
            assert (await reader.poll())[T0]

    run(story())


def test_a_closed_reader_says_so(run: Run) -> None:
    async def story() -> None:
        _, client = await opened()
        async with client:
            reader = client.reader({T0: 0})
            await reader.poll()
            await reader.close()
            with pytest.raises(ClientClosed, match="reader"):
                await reader.poll()

    run(story())


def test_what_a_loop_leaves_behind_is_not_lost(run: Run) -> None:
    async def story() -> None:
        _, client = await opened(end=35)
        async with client, client.reader({T0: 0}) as reader:
            async for record in reader:
                assert record.offset == 0
                break
            assert await reader.position(T0) == 1
            assert (await anext(reader)).offset == 1
            polled = (await reader.poll(max_records=3))[T0]
            assert [record.offset for record in polled] == [2, 3, 4]
            offsets: list[int] = []
            async for record in reader:
                offsets.append(record.offset)
                if record.offset == 34:
                    break
            assert offsets == list(range(5, 35))

    run(story())


def test_iteration_obeys_seek_pause_and_assign(run: Run) -> None:
    async def story() -> None:
        _, client = await opened()
        async with client, client.reader({T0: 0}) as reader:
            assert (await anext(reader)).offset == 0
            reader.seek(T0, 20)
            assert (await anext(reader)).offset == 20
            reader.pause(T0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await anext(reader)
            reader.resume(T0)
            assert (await anext(reader)).offset == 21
            reader.assign({T0: 7})
            assert (await anext(reader)).offset == 7
        with pytest.raises(ClientClosed):
            await anext(reader)

    run(story())


def test_a_fetch_after_iteration_has_the_rest_of_the_chunk(run: Run) -> None:
    async def story() -> None:
        _, client = await opened(end=PER_FETCH)
        async with client, client.reader({T0: 0}) as reader:
            assert (await anext(reader)).offset == 0
            (chunk,) = await reader.fetch()
            assert chunk.fetch_offset == 1
            assert [record.offset for record in iterate_records(chunk.data)][-1] == PER_FETCH - 1
            assert await reader.position(T0) == PER_FETCH
            assert await reader.fetch(timeout_ms=10) == []

    run(story())
