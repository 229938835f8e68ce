"""The client side of one measurement: a process that drives one broker and reports as JSON.

`python -m bench.driver WORKLOAD JSON` runs one workload with confluent-kafka (librdkafka) or, for
`produce_raw`, a bare socket. The broker's CPU is read right around the measured part, so
connecting and importing are charged to nobody.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.wire import RawConnection, produce_error, produce_request, record_batch
from tests.support.processes import cpu_seconds

_IN_FLIGHT_LIMIT = 200_000
_TIMEOUT_SECONDS = 60
_NOT_COUNTED = b"first"


@dataclass(slots=True)
class Outcome:
    """What one workload found."""

    seconds: float = 0.0
    count: int = 0
    broker_cpu_seconds: float = 0.0
    client_cpu_share: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)


@contextmanager
def measured(outcome: Outcome, broker_pid: int) -> Iterator[None]:
    """Time and CPU of the block, for the client and for the broker."""
    broker, client, start = cpu_seconds(broker_pid), time.process_time(), time.perf_counter()
    yield
    outcome.seconds = time.perf_counter() - start
    outcome.client_cpu_share = (time.process_time() - client) / outcome.seconds
    outcome.broker_cpu_seconds = cpu_seconds(broker_pid) - broker


def produce(
    bootstrap: str, pid: int, topic: str, size: int, count: int, acks: str, partitions: int = 1
) -> Outcome:
    """As many records as fast as possible, in chunks to each partition; every one acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * _IN_FLIGHT_LIMIT,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    chunk = 5_000
    messages = [{"value": os.urandom(size)} for _ in range(chunk)]
    producer.produce_batch(topic, messages[:1], partition=0)
    _flush(producer)
    outcome = Outcome(count=count)
    with measured(outcome, pid):
        for number in range(count // chunk):
            while len(producer) > _IN_FLIGHT_LIMIT:
                producer.poll(0.001)
            if producer.produce_batch(topic, messages, partition=number % partitions) != chunk:
                raise SystemExit("the client's queue refused records")
        _flush(producer)
    _expect_records(bootstrap, topic, partitions, count + 1)
    return outcome


def consume(
    bootstrap: str,
    pid: int,
    topic: str,
    count: int,
    partitions: int = 1,
    settings: dict[str, int] | None = None,
) -> Outcome:
    """Read `count` records from the start of so many partitions."""
    # A full local queue makes the client pause for a second: that would measure the pause.
    roomy = {
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1_000_000,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = _consumer(bootstrap, {**roomy, **(settings or {})})
    consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT_SECONDS)
    outcome = Outcome(count=count)
    with measured(outcome, pid):
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        left = count
        while left > 0:
            got = consumer.consume(min(left, 10_000), timeout=_TIMEOUT_SECONDS)
            if not got or got[-1].error() is not None:
                raise SystemExit(f"{left} records missing: {got[-1].error() if got else 'silence'}")
            left -= len(got)
    consumer.close()
    return outcome


def produce_one(
    bootstrap: str, pid: int, topic: str, size: int, count: int, warm_up: int, acks: str
) -> Outcome:
    """One record at a time, each awaited, through the real client."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    value, state = os.urandom(size), {"acknowledged": 0}

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise SystemExit(str(error))
        state["acknowledged"] += 1

    def send(number: int) -> None:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        while state["acknowledged"] <= number:
            producer.poll(1.0)

    return _one_by_one(send, pid, count, warm_up)


def produce_raw(
    bootstrap: str, pid: int, topic: str, size: int, count: int, warm_up: int, acks: str
) -> Outcome:
    """The same over a bare socket: what remains is the broker's own time."""
    host, _, port = bootstrap.rpartition(":")
    connection = RawConnection(host, int(port))
    batch = record_batch(os.urandom(size))
    frame = produce_request(topic, 0, -1 if acks == "all" else int(acks), batch)

    def send(_: int) -> None:
        if produce_error(connection.ask(frame), topic) != 0:
            raise SystemExit("a produce was refused")

    return _one_by_one(send, pid, count, warm_up)


def _one_by_one(send: Callable[[int], None], pid: int, count: int, warm_up: int) -> Outcome:
    for number in range(warm_up):
        send(number)
    outcome = Outcome(count=count)
    latencies = outcome.latencies_ms
    with measured(outcome, pid):
        for number in range(warm_up, warm_up + count):
            start = time.perf_counter_ns()
            send(number)
            latencies.append((time.perf_counter_ns() - start) / 1e6)
    return outcome


def compaction_watch(bootstrap: str, pid: int, topic: str, flag: str) -> Outcome:
    """Small produces at 200 a second until a file named `flag` appears."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0})
    done: list[float] = []
    sent: list[float] = []
    outcome = Outcome()
    with measured(outcome, pid):
        while not Path(flag).exists() or len(done) < 200:
            sent.append(time.perf_counter())
            producer.produce(
                topic, b"x" * 100, on_delivery=lambda *_: done.append(time.perf_counter())
            )
            while len(done) < len(sent):
                producer.poll(1.0)
            time.sleep(0.005)
    outcome.count = len(done)
    outcome.latencies_ms = [(end - start) * 1e3 for start, end in zip(sent, done, strict=True)]
    return outcome


def paced(bootstrap: str, pid: int, topic: str, rate: int, seconds: float, acks: str) -> Outcome:
    """Records that carry their time of sending, at a steady rate, without linger."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    # One record ahead of the rest: connecting is not part of what is measured.
    producer.produce(topic, _NOT_COUNTED, partition=0)
    _flush(producer)
    count, padding = int(rate * seconds), b"x" * 92
    outcome = Outcome(count=count)
    with measured(outcome, pid):
        start = time.perf_counter()
        for number in range(count):
            ahead = start + number / rate - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            stamp = time.monotonic_ns().to_bytes(8, "big")
            producer.produce(topic, stamp + padding, partition=0)
            producer.poll(0)
        _flush(producer)
    return outcome


def stamped(bootstrap: str, pid: int, topic: str, count: int) -> Outcome:
    """Read the records of `paced` as they come; latencies in the order of arrival."""
    consumer = _consumer(bootstrap, {})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.consume(1, timeout=0.5)
    print("ready", flush=True)
    outcome = Outcome()
    latencies = outcome.latencies_ms
    with measured(outcome, pid):
        while len(latencies) < count:
            message = consumer.poll(_TIMEOUT_SECONDS)
            if message is None:
                break
            value = message.value()
            if message.error() is None and value is not None and value != _NOT_COUNTED:
                sent_ns = int.from_bytes(value[:8], "big")
                latencies.append((time.monotonic_ns() - sent_ns) / 1e6)
    outcome.count = len(latencies)
    consumer.close()
    return outcome


def _consumer(bootstrap: str, settings: dict[str, Any]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def _flush(producer: Producer) -> None:
    if producer.flush(_TIMEOUT_SECONDS):
        raise SystemExit("records were not acknowledged in time")


def _expect_records(bootstrap: str, topic: str, partitions: int, expected: int) -> None:
    consumer = _consumer(bootstrap, {})
    found = 0
    for number in range(partitions):
        where = TopicPartition(topic, number)
        found += consumer.get_watermark_offsets(where, timeout=_TIMEOUT_SECONDS)[1]
    consumer.close()
    if found != expected:
        raise SystemExit(f"{expected} records sent, {found} in the log")


WORKLOADS: dict[str, Callable[..., Outcome]] = {
    "produce": produce,
    "consume": consume,
    "produce_one": produce_one,
    "produce_raw": produce_raw,
    "compaction_watch": compaction_watch,
    "paced": paced,
    "stamped": stamped,
}


if __name__ == "__main__":
    print(json.dumps(asdict(WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2])))), flush=True)
