"""Clients of a simulated broker that write down everything they do and see."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random

from headrace.client import (
    EARLIEST,
    LATEST,
    AsyncClient,
    ClientSettings,
    ProducerSettings,
    ReaderSettings,
    RecordMetadata,
)
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import iterate_headers
from tests.simulation.loop import SeededRandomness, SimulatedClock, VirtualLoop
from tests.simulation.machine import PORT
from tests.simulation.processes import LOCALHOST
from tests.simulation.streams import Streams
from tests.support.history import FinalScan, History, Seen, Send

TOPIC = "events"
VALUE_BYTES_MAX = 20_000
# Answers that say for certain that nothing was written.
REFUSALS = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ClientHost:
    """What the clients of one cluster share: a host, a history, and where the brokers are."""

    def __init__(
        self,
        loop: VirtualLoop,
        streams: Streams,
        history: History,
        bootstrap: Sequence[str] = (f"{LOCALHOST}:{PORT}",),
        host: str = LOCALHOST,
    ) -> None:
        self.loop = loop
        self.host = host
        self.bootstrap = tuple(bootstrap)
        self.streams = streams
        self.history = history
        self._clock = SimulatedClock(loop)

    def client(self, name: str) -> AsyncClient:
        settings = ClientSettings(
            self.bootstrap,
            client_id=name,
            request_timeout_ms=2_000,
            call_timeout_ms=60_000,
            connect_timeout_ms=1_000,
        )
        randomness = SeededRandomness(self.streams(f"{self.host}/{name}/library"))
        return AsyncClient(settings, clock=self._clock, randomness=randomness)

    async def produce(
        self, name: str, partitions: int, settings: ProducerSettings, until: float
    ) -> None:
        """Send bursts of records until the time comes; return when the fate of all is known."""
        random = self.streams(f"{self.host}/{name}")
        client = self.client(name)
        producer = client.producer(settings)
        deliveries: list[asyncio.Future[RecordMetadata]] = []
        number = 0
        while self.loop.time() < until:
            await asyncio.sleep(random.random() * 0.25)
            for _ in range(random.randint(1, 6)):
                number += 1
                partition = TopicPartition(TOPIC, random.randrange(partitions))
                value = _value(random, name, number)
                send = self.history.begin_send(
                    name,
                    partition,
                    value,
                    acks=settings.acks_number,
                    idempotent=settings.is_idempotent,
                )
                try:
                    delivery = await producer.send(TOPIC, value, partition=partition.partition)
                except HeadraceError:
                    continue
                delivery.add_done_callback(partial(self._settle, send))
                deliveries.append(delivery)
        if deliveries:
            await asyncio.wait(deliveries)
        await client.close()

    def _settle(self, send: Send, delivery: "asyncio.Future[RecordMetadata]") -> None:
        failure = delivery.exception()
        if failure is None:
            self.history.acked(send, delivery.result().offset)
        elif isinstance(failure, HeadraceError) and failure.code in REFUSALS:
            self.history.failed(send)

    async def read(
        self, name: str, partitions: int, until: float, *, reads_are_final: bool
    ) -> None:
        """Follow all partitions from their start, whatever happens to the broker.

        Where `reads_are_final` is not promised, a reader whose place is gone starts again.
        """
        positions = {TopicPartition(TOPIC, number): 0 for number in range(partitions)}
        client = self.client(name)
        reader = client.reader(dict.fromkeys(positions, EARLIEST), ReaderSettings())
        while self.loop.time() < until:
            began = self.history.now()
            try:
                polled = await reader.poll(timeout_ms=500)
            except HeadraceError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    if reads_are_final:
                        raise
                    for partition in positions:
                        reader.seek(partition, EARLIEST)
                        positions[partition] = 0
                await asyncio.sleep(0.1)
                continue
            for partition, records in polled.items():
                seen = [(record.offset, bytes(record.value or b"")) for record in records]
                self.history.read(name, partition, began, positions[partition], seen)
                positions[partition] = records[-1].offset + 1
        await client.close()

    async def prove_alive(self, partitions: int) -> None:
        """Once nothing goes wrong any more, a new client is served without delay."""
        settings = ProducerSettings(acks="all", delivery_timeout_ms=10_000)
        async with self.client("alive") as client, client.producer(settings) as producer:
            for number in range(partitions):
                value = b"alive-%d" % number
                send = self.history.begin_send("alive", TopicPartition(TOPIC, number), value)
                metadata = await producer.send_and_wait(TOPIC, value, partition=number)
                self.history.acked(send, metadata.offset)

    async def scan(self, partitions: int) -> None:
        """Read every partition from start to end into the history."""
        client = self.client("scan")
        for number in range(partitions):
            partition = TopicPartition(TOPIC, number)
            starts = await client.admin.list_offsets({partition: EARLIEST})
            end = await self._end_of(client, partition)
            batches = await batches_between(client, partition, starts[partition].offset, end)
            records = tuple(records_in(batches))
            self.history.scanned(
                FinalScan(partition, starts[partition].offset, end, records, batches)
            )
        await client.close()

    async def _end_of(self, client: AsyncClient, partition: TopicPartition) -> int:
        ends = await client.admin.list_offsets({partition: LATEST})
        return ends[partition].offset


def _value(random: Random, name: str, number: int) -> bytes:
    text = b"%s-%d" % (name.encode(), number)
    if random.random() < 0.01:
        return text.ljust(VALUE_BYTES_MAX * 2, b".")  # the broker must refuse it
    return text.ljust(random.choice((20, 20, 200, 2000)), b".")


def records_in(batches: bytes) -> Iterator[Seen]:
    """Offset and value of every record in a run of whole batches."""
    for position, _ in iterate_headers(batches):
        for record in iterate_records(batches, position):
            yield record.offset, bytes(record.value or b"")


async def batches_between(
    client: AsyncClient, partition: TopicPartition, start: int, end: int
) -> bytes:
    """Everything a reader gets from `start` up to `end`, undecoded."""
    reader = client.reader({partition: start})
    batches = bytearray()
    position = start
    while position < end:
        for chunk in await reader.fetch(timeout_ms=1000):
            batches += chunk.data
            for _, header in iterate_headers(chunk.data):
                position = header.last_offset + 1
    await reader.close()
    return bytes(batches)
