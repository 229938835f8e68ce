"""Plain numbered records, written through a real client."""

from __future__ import annotations

from confluent_kafka import Producer

_PATIENCE_SECONDS = 30


def value(partition: int, offset: int) -> bytes:
    """What `fill` writes at this place of a fresh topic."""
    return f"{partition}/{offset}".encode()


def fill(bootstrap_servers: str, topic: str, partitions: int, records: int, first: int = 0) -> None:
    """Write `records` numbered values to each partition and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    failures: list[str] = []
    for offset in range(first, first + records):
        for partition in range(partitions):
            producer.produce(
                topic,
                value(partition, offset),
                partition=partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        producer.poll(0)
    assert producer.flush(_PATIENCE_SECONDS) == 0
    assert failures == []
