"""The asyncio producer in virtual time."""

import asyncio
from typing import Any

import pytest

from headrace.client import (
    AsyncClient,
    BufferFull,
    ClientClosed,
    ClientSettings,
    DeliveryTimedOut,
    ProducerSettings,
    RecordMetadata,
    TopicPartition,
)
from headrace.client.core.accumulator import RecordAccumulator
from headrace.client.core.errors import SenderFailed
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.murmur2 import partition_for_key
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import parse_header
from tests.simulation.loop import EPOCH_MS, SimulatedClock, VirtualLoop
from tests.support.client_core import TOPIC_ID
from tests.support.scripted_broker import HANG_UP, SILENCE, Instead, ScriptedBroker
from tests.unit.client.aio.conftest import Run


class Log:
    """The broker's side of produce: appends, and fails as told."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.records: dict[int, list[Record]] = {}
        self.failures: list[Instead | ErrorCode] = []
        self.stamps: list[tuple[int, int, int]] = []
        broker.on(ProduceRequest, self._append)
        broker.on(
            InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=4, producer_epoch=0)
        )

    def _append(self, request: ProduceRequest) -> Message | Instead:
        failure = self.failures.pop(0) if self.failures else ErrorCode.NONE
        if isinstance(failure, Instead):
            return failure
        parts = []
        for part in request.topic_data[0].partition_data:
            assert part.records is not None
            header = parse_header(part.records)
            self.stamps.append((header.producer_id, header.producer_epoch, header.base_sequence))
            log = self.records.setdefault(part.index, [])
            offset = len(log)
            if failure is ErrorCode.NONE:
                log.extend(iterate_records(part.records))
            parts.append(
                PartitionProduceResponse(index=part.index, error_code=failure, base_offset=offset)
            )
        if not request.acks:
            return SILENCE
        topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=parts)
        return ProduceResponse(responses=[topic])


async def opened(
    loop: VirtualLoop, partitions: int = 1, **settings: int
) -> tuple[Log, AsyncClient]:
    broker = ScriptedBroker(9092, partitions=partitions)
    await broker.start()
    chosen = ClientSettings("broker:9092", **settings)  # type: ignore[arg-type]  # numbers only
    return Log(broker), AsyncClient(chosen, clock=SimulatedClock(loop))


def test_a_record_is_delivered_and_its_place_told(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client, client.producer() as producer:
            headers = [("h", b"1"), ("h", None)]
            told = await producer.send_and_wait(
                "t", b"v", key=b"k", headers=headers, timestamp_ms=EPOCH_MS
            )
            assert told == RecordMetadata("t", 0, 0, EPOCH_MS)
        (record,) = log.records[0]
        assert (record.key, record.value, list(record.headers)) == (b"k", b"v", headers)
        assert log.stamps == [(4, 0, 0)]

    run(story())


def test_linger_gathers_and_passes_in_virtual_time(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client, client.producer(ProducerSettings(linger_ms=50)) as producer:
            await producer.send_and_wait("t", b"warm")
            began = loop.time()
            deliveries = [await producer.send("t", b"%d" % index) for index in range(3)]
            assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
            assert 0.05 <= loop.time() - began < 0.06
        assert len(log.broker.requests(ProduceRequest)) == 2

    run(story())


def test_flush_does_not_wait_for_linger(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        _, client = await opened(loop)
        async with client, client.producer(ProducerSettings(linger_ms=60_000)) as producer:
            delivery = await producer.send("t", b"v")
            await producer.flush()
            assert delivery.done()
            assert loop.time() < 1
            await producer.flush()

    run(story())


def test_keys_decide_as_in_java_and_without_a_key_partitions_take_turns(
    run: Run, loop: VirtualLoop
) -> None:
    async def story() -> None:
        log, client = await opened(loop, partitions=3)
        async with client, client.producer() as producer:
            for key in (b"a", b"b", b"user-17", b""):
                told = await producer.send_and_wait("t", b"v", key=key)
                assert told.partition == partition_for_key(key, 3)
            turns = [(await producer.send_and_wait("t", b"v")).partition for _ in range(6)]
            assert sorted(turns[:3]) == sorted(turns[3:]) == [0, 1, 2]
            assert (await producer.send_and_wait("t", b"v", partition=2)).partition == 2
            assert (await producer.send_and_wait("t", b"v", timestamp_ms=7)).timestamp_ms == 7
        assert sum(len(records) for records in log.records.values()) == 12

    run(story())


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_does_not_exist_is_refused(
    run: Run, loop: VirtualLoop, partition: int
) -> None:
    async def story() -> None:
        _, client = await opened(loop, partitions=3)
        async with client, client.producer() as producer:
            with pytest.raises(ApiError, match=f"has partitions 0 to 2, not {partition}"):
                await producer.send("t", b"v", partition=partition)

    run(story())


@pytest.mark.parametrize("failure", [HANG_UP, SILENCE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_failed_try_is_repeated_with_the_same_sequence(
    run: Run, loop: VirtualLoop, failure: Instead | ErrorCode
) -> None:
    async def story() -> None:
        log, client = await opened(loop, request_timeout_ms=1000)
        async with client, client.producer() as producer:
            log.failures = [failure, failure]
            assert (await producer.send_and_wait("t", b"v")).offset == 0
            assert (await producer.send_and_wait("t", b"w")).offset == 1
        assert set(log.stamps) == {(4, 0, 0), (4, 0, 1)}

    run(story())


def test_a_record_that_cannot_be_delivered_fails_in_time(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop, request_timeout_ms=1000)
        settings = ProducerSettings(delivery_timeout_ms=5000)
        async with client, client.producer(settings) as producer:
            log.failures = [SILENCE] * 100
            with pytest.raises(DeliveryTimedOut, match="t-0 were not acknowledged within 5000 ms"):
                await producer.send_and_wait("t", b"v")
            assert 5 <= loop.time() < 6
            log.failures.clear()
            assert (await producer.send_and_wait("t", b"w")).offset == 0

    run(story())


def test_sending_waits_for_room_and_gives_up_in_time(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop, request_timeout_ms=4000)
        settings = ProducerSettings(buffer_bytes=2000, batch_bytes=500, block_ms_max=3000)
        async with client, client.producer(settings) as producer:
            await producer.send_and_wait("t", b"w")
            log.failures = [SILENCE] * 5
            for _ in range(10):
                await producer.send("t", b"x" * 150)
            began = loop.time()
            with pytest.raises(BufferFull, match="of 2000 bytes wait to be sent"):
                await producer.send("t", b"x" * 500)
            assert 3 <= loop.time() - began < 3.1
            waiting = [asyncio.ensure_future(producer.send("t", b"%d" % i * 150)) for i in (1, 2)]
            await producer.flush()
            for delivery in waiting:
                await (await delivery)
        values = [(record.value or b"")[:1] for record in log.records[0]]
        assert values == [b"w"] + [b"x"] * 10 + [b"1", b"2"], "whoever waited first goes first"

    run(story())


def test_closing_delivers_what_was_sent_and_takes_no_more(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client:
            producer = client.producer(ProducerSettings(linger_ms=60_000))
            delivery = await producer.send("t", b"v")
            await producer.close()
            assert delivery.result().offset == 0
            with pytest.raises(ClientClosed):
                await producer.send("t", b"v")
        assert len(log.records[0]) == 1

    run(story())


def test_closing_the_client_closes_its_producers(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client:
            await client.producer(ProducerSettings(linger_ms=60_000)).send("t", b"v")
        assert len(log.records[0]) == 1

    run(story())


def test_acks_0_asks_for_no_answer(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client, client.producer(ProducerSettings(acks=0)) as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == -1
            while not log.records:
                await asyncio.sleep(0.001)
        assert log.stamps == [(-1, -1, -1)]

    run(story())


def test_without_a_producer_id_nothing_can_be_sent(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        denied = InitProducerIdResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1
        )
        log.broker.on(InitProducerIdRequest, lambda _: denied)
        async with client, client.producer() as producer:
            with pytest.raises(ApiError, match="InitProducerId"):
                await producer.send_and_wait("t", b"v")

    run(story())


def test_a_ready_made_batch_is_sent_as_it_is(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        batch = encode_batch([Record(0, 1, b"a", b"1"), Record(1, 2, b"b", b"2")])
        async with client, client.producer() as producer:
            await producer.send_and_wait("t", b"before")
            delivery = await producer.send_batch(TopicPartition("t", 0), batch)
            assert (await delivery).offset == 1
            with pytest.raises(ApiError, match="topic 't' has only partition 0, not 8"):
                await producer.send_batch(TopicPartition("t", 8), batch)
        assert [record.key for record in log.records[0]] == [None, b"a", b"b"]
        assert log.stamps[-1] == (4, 0, 1)

    run(story())


def test_an_unwatched_failure_makes_no_noise(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client, client.producer() as producer:
            log.failures = [ErrorCode.INVALID_RECORD]
            await producer.send("t", b"v")
            await producer.flush()
        assert loop.failures == []

    run(story())


@pytest.mark.parametrize(
    "wrong", [{"value": "text"}, {"key": "k"}, {"headers": [("a", "b")]}, {"timestamp_ms": "2024"}]
)
def test_a_record_of_wrong_types_is_refused_at_once_and_harms_no_other(
    run: Run, loop: VirtualLoop, wrong: dict[str, Any]
) -> None:
    async def story() -> None:
        log, client = await opened(loop)
        async with client, client.producer() as producer:
            arguments: dict[str, Any] = {"topic": "t", "value": b"v", **wrong}
            with pytest.raises(TypeError, match=next(iter(wrong))):
                await producer.send_and_wait(**arguments)
            assert log.broker.connections == 0
            assert (await producer.send_and_wait("t", b"good")).offset == 0
            with pytest.raises(TypeError):
                await producer.send(**arguments)
        assert [record.value for record in log.records[0]] == [b"good"]

    run(story())


def test_a_wrong_partition_is_not_called_a_missing_topic(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        log, client = await opened(loop, partitions=5)
        async with client, client.producer() as producer:
            for wrong in (99, -1):
                with pytest.raises(ApiError, match=f"'t' has partitions 0 to 4, not {wrong}"):
                    await producer.send("t", b"v", partition=wrong)
            log.broker.partitions = 6
            added = await producer.send_and_wait("t", b"v", partition=5)
            assert added.partition == 5

    run(story())


def test_a_fault_in_the_producer_leaves_nobody_waiting(
    run: Run, loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> float:
        raise ZeroDivisionError("a mistake")

    async def story() -> None:
        _, client = await opened(loop)
        async with client, client.producer() as producer:
            await producer.send_and_wait("t", b"first")
            monkeypatch.setattr(RecordAccumulator, "next_due_ms", broken)
            delivery = await producer.send("t", b"second")
            with pytest.raises(SenderFailed, match="a mistake"):
                await delivery
        assert [type(failure["exception"]) for failure in loop.failures] == [ZeroDivisionError]
        loop.failures.clear()

    run(story())
