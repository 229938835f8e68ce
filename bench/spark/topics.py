"""Topics to read: the same rows on every broker, written as encoded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from headrace.client import Client, NewTopic, TopicPartition
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch

_PER_BATCH = 500
TIME_MS = 1_700_000_000_000
# A topic of a few rows, to be read before each measure.
WAKING, WAKING_ROWS = "waking", 1_000
JSON_SCHEMA = "user string, item int, price double"


def plain(number: int) -> bytes:
    """100 bytes."""
    return b"%0100d" % number


def click(number: int) -> bytes:
    """A small JSON document of about 60 bytes."""
    user, item = number % 1000, number % 97
    return b'{"user":"user-%d","item":%d,"price":%d.25}' % (user, item, number % 500)


def fill(
    servers: Sequence[str], topic: str, rows: int, partitions: int, value: Callable[[int], bytes]
) -> None:
    """`rows` records over all partitions, a hundredth of a millisecond apart, on every broker."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(each)) for each in servers]
        for client in clients:
            # The times of the records are long past: retention would take them while they are read.
            kept = {"retention.ms": "-1"}
            client.admin.create_topics([NewTopic(topic, partitions, 1, kept)])
        producers = [stack.enter_context(client.producer()) for client in clients]
        each = rows // partitions
        for base in range(0, each, _PER_BATCH):
            count = min(_PER_BATCH, each - base)
            records = [
                Record(n, TIME_MS + (base + n) // 100, b"k%07d" % n, value(base + n))
                for n in range(count)
            ]
            data = encode_batch(records)
            for partition in range(partitions):
                for producer in producers:
                    producer.send_batch(TopicPartition(topic, partition), data)
        for producer in producers:
            producer.flush()
