"""Rows about a broker's life: start, restart, memory, many partitions, a broker in a test."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.readings import HEADRACE, OS, Readings
from bench.sides import Side, discard, in_turn
from bench.wire import RawConnection, first_ack_seconds, produce_error, produce_request
from bench.wire import record_batch as batch_of
from tests.support.brokers import HOST, BrokerProcess

_MANY = 1_000
_IDLE_SECONDS = 5.0
_SETTLE_SECONDS = 2.0
_CHECKPOINTED_SECONDS = 8.0
_SEGMENT_BYTES = str(1 << 30)


def measure_start(sides: list[Side], pairs: int, readings: Readings) -> None:
    """From starting the process on an empty, formatted directory to the first acknowledgement."""
    for pair, order in in_turn(_as_they_come(sides), pairs):
        for side in order:
            broker = side.fresh("start", {})
            started = time.monotonic()
            broker.launch()
            taken = first_ack_seconds(HOST, broker.port, f"first-{pair}", -1, started)
            readings.add("start to first ack: s", side.name, taken)
            time.sleep(_SETTLE_SECONDS)
            readings.add("memory idle: MB", side.name, broker.memory().total / 1e6)
            discard(broker)


def measure_memory_after_load(side: Side, readings: Readings) -> None:
    """Resident memory of the side that has carried the load of this run, and 1 GB more."""
    topic, count = "memory", 1_000_000
    side.create_topic(topic)
    side.drive("produce", topic=topic, size=1024, count=count, acks="all")
    side.drive("consume", topic=topic, count=count)
    readings.add("memory after 1 GB: MB", side.name, side.broker.memory().total / 1e6)
    side.delete_topic(topic)


def measure_many_partitions(side: Side, readings: Readings) -> None:
    """1,000 partitions, each written and read once: creation, idle CPU, memory for each."""
    broker = side.fresh("many", {})
    broker.start()
    own = Side(side.name, broker, side.fresh)
    try:
        own.create_topic("before")
        _write_and_read(broker, "before", 1)
        before = broker.memory().total
        own.admin.list_topics(timeout=30)
        start = time.perf_counter()
        own.create_topic("many", _MANY)
        readings.add("1,000 partitions, create: s", side.name, time.perf_counter() - start)
        _write_and_read(broker, "many", _MANY)
        # The checkpoint five seconds after the writes is work, not idleness.
        time.sleep(_CHECKPOINTED_SECONDS)
        grown = broker.memory().total - before
        readings.add("1,000 partitions, memory each: KB", side.name, grown / _MANY / 1e3)
        cpu = broker.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        share = (broker.cpu_seconds() - cpu) / _IDLE_SECONDS * 100
        readings.add("1,000 partitions, idle CPU: %", side.name, share)
    finally:
        discard(broker)


def _write_and_read(broker: BrokerProcess, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(partitions):
        producer.produce(topic, b"x" * 100, partition=partition)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged in time")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    left = partitions
    while left > 0:
        got = consumer.consume(partitions, timeout=60)
        if not got:
            raise RuntimeError(f"{left} records missing")
        left -= len(got)
    consumer.close()


def measure_clean_restart(side: Side, gigabytes: int, times: int, readings: Readings) -> None:
    """Restart after a clean stop; the amount of data must not matter."""
    broker = side.fresh("clean", {"log.segment.bytes": _SEGMENT_BYTES})
    broker.start()
    try:
        _fill(broker, gigabytes, batch_bytes=950_000, partitions=max(1, gigabytes))
        for number in range(times):
            broker.stop()
            readings.add("clean restart: s", side.name, _restart(broker, f"again-{number}"))
    finally:
        discard(broker)


def measure_crash_restart(side: Side, times: int, readings: Readings) -> None:
    """Restart after SIGKILL with 1 GB of 16 KB batches that no checkpoint covers."""
    for number in range(times):
        settings = {"log.segment.bytes": str((1 << 31) - 1)}
        broker = side.fresh("crash", settings)
        broker.start()
        try:
            _fill(broker, 1, batch_bytes=16_000, partitions=1)
            broker.kill()
            # Whatever was checkpointed meanwhile is forgotten, as if the crash came before it.
            (broker.data_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
            readings.add("crash restart: s", side.name, _restart(broker, f"again-{number}"))
        finally:
            discard(broker)


def _restart(broker: BrokerProcess, topic: str) -> float:
    started = time.monotonic()
    broker.launch()
    return first_ack_seconds(HOST, broker.port, topic, -1, started)


def _fill(broker: BrokerProcess, gigabytes: int, batch_bytes: int, partitions: int) -> None:
    """Write prepared batches over a bare socket, a few in flight, acknowledged by page cache."""
    admin = Side("", broker, lambda *_: broker)
    admin.create_topic("fill", partitions)
    batch = batch_of(b"x" * 1000, batch_bytes // 1_010)
    frames = [produce_request("fill", number, 1, batch) for number in range(partitions)]
    connection = RawConnection(HOST, broker.port, timeout_seconds=120)
    for frame in frames:
        # A broker may know its leaders a moment before it leads.
        while produce_error(connection.ask(frame), "fill") != 0:
            time.sleep(0.01)
    count, in_flight = int(gigabytes * 1e9) // len(batch), 5
    for number in range(count + in_flight):
        if number < count:
            connection.send(frames[number % partitions])
        if number >= in_flight and produce_error(connection.receive(), "fill") != 0:
            raise RuntimeError("a batch was refused while filling")
    connection.close()


def measure_testing_broker(times: int, readings: Readings) -> None:
    """`headrace.testing.Broker`, start and stop, the mean of many."""
    from headrace.testing import Broker

    def once() -> None:
        with Broker():
            pass

    readings.add("testing.Broker start + stop: ms", HEADRACE, _mean_ms(once, times))


def _mean_ms(action: Callable[[], None], times: int) -> float:
    action()
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times * 1e3


def _as_they_come(sides: list[Side]) -> list[Side]:
    return [side for side in sides if side.name != OS]
