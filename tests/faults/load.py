"""Clients that go on while their broker dies: what they sent, were told and read, recorded.

Everybody is a real client (librdkafka) with its own thread. A sender never lets more than a
window of records be unanswered, so that the history stays small and every round has its share
of sends that were cut off in the middle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Assigned

from headrace.core.ids import TopicPartition
from tests.support.history import FinalScan, History, Seen, Send

PATIENCE_SECONDS = 60.0
WINDOW = 200
BURST = 20
# Come back at once: the broker is away for a fraction of a second. Without `none` the client
# forgets the broker at each kill and looks for it anew once a second, which a broker that lives
# for less than that can miss for minutes.
_RECONNECT = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "metadata.recovery.strategy": "none",
}
_QUIET = {"log_level": 0}


class Sender:
    """One producer that writes to each of its partitions in turn until it is told to stop."""

    def __init__(
        self,
        history: History,
        bootstrap_servers: str,
        name: str,
        partitions: list[TopicPartition],
        *,
        acks: int,
    ) -> None:
        self.name = name
        self.answered = 0
        self.failures: list[str] = []
        self._history = history
        self._partitions = partitions
        self._acks = acks
        self._unanswered = 0
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": acks,
                "enable.idempotence": acks == -1,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 50,
                "message.timeout.ms": int(PATIENCE_SECONDS * 1000),
                "error_cb": self._error,
                **_RECONNECT,
                **_QUIET,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait until everything is answered; the rest stays unknown."""
        self._stopping.set()
        self._thread.join()
        if self.failures:
            self._producer.purge()
        self._producer.flush(PATIENCE_SECONDS)

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                if self._unanswered + BURST > WINDOW:
                    self._producer.poll(0.01)
                    continue
                for _ in range(BURST):
                    self._send(self._partitions[number % len(self._partitions)], number)
                    number += 1
                self._producer.poll(0.002)
        except (KafkaException, SystemError) as error:
            # After a fatal error nothing can be sent; the binding raises it in both ways.
            self.failures.append(f"fatal: {error}")

    def _send(self, partition: TopicPartition, number: int) -> None:
        value = f"{self.name}-{number}".encode()
        send = self._history.begin_send(
            self.name, partition, value, acks=self._acks, idempotent=self._acks == -1
        )
        self._unanswered += 1
        self._producer.produce(
            partition.topic,
            value,
            partition=partition.partition,
            on_delivery=lambda error, message: self._delivered(send, error, message),
        )

    def _delivered(self, send: Send, error: KafkaError | None, message: Message) -> None:
        self._unanswered -= 1
        offset = message.offset()
        if error is not None:
            # It may have been written all the same; only the broker's word would be certain.
            self.failures.append(f"{send.value!r}: {error}")
        elif offset is None or offset < 0:
            self.failures.append(f"{send.value!r}: acknowledged without an offset")
        else:
            self._history.acked(send, offset)
            self.answered += 1

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


class TailReader:
    """One consumer by assignment that reads on from where it is, whatever happens."""

    def __init__(
        self,
        history: History,
        bootstrap_servers: str,
        name: str,
        partitions: list[TopicPartition],
    ) -> None:
        self.name = name
        self.failures: list[str] = []
        self.positions = dict.fromkeys(partitions, 0)
        self._history = history
        self._stopping = threading.Event()
        self._consumer = consumer(bootstrap_servers, partitions)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop_at(self, ends: dict[TopicPartition, int]) -> None:
        """Read up to these offsets, then stop."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(self.positions[each] < ends[each] for each in self.positions):
            if time.monotonic() > deadline:
                self.failures.append(f"stuck at {self.positions} of {ends}")
            if self.failures:
                break
            time.sleep(0.01)
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = self._history.now()
            found: dict[TopicPartition, list[Seen]] = {}
            for message in self._consumer.consume(500, timeout=0.05):
                error = message.error()
                if error is None:
                    partition, seen = _seen(message)
                    found.setdefault(partition, []).append(seen)
                elif not is_passing(error):
                    self.failures.append(str(error))
            for partition, records in found.items():
                start = self.positions[partition]
                self._history.read(self.name, partition, began, start, records)
                self.positions[partition] = records[-1][0] + 1


def consumer(bootstrap_servers: str, partitions: list[TopicPartition]) -> Consumer:
    """A consumer that starts at offset 0, checks every CRC and never jumps by itself."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "by-assignment",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 10,
            **_RECONNECT,
            **_QUIET,
        }
    )
    made.assign([Assigned(each.topic, each.partition, 0) for each in partitions])
    return made


def is_passing(error: KafkaError) -> bool:
    """Whether an error only says that the broker is away for the moment."""
    return bool(error.retriable()) or error.code() in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    )


def _seen(message: Message) -> tuple[TopicPartition, Seen]:
    topic, partition = message.topic(), message.partition()
    offset, value = message.offset(), message.value()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return TopicPartition(topic, partition), (offset, bytes(value or b""))


def scan(bootstrap_servers: str, partitions: list[TopicPartition]) -> dict[TopicPartition, Scan]:
    """Every record of each partition from its start to its end."""
    reading = consumer(bootstrap_servers, partitions)
    try:
        found = {}
        for each in partitions:
            start, end = _watermarks(reading, each)
            found[each] = Scan(start, end)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(not each.complete for each in found.values()) and time.monotonic() < deadline:
            for message in reading.consume(5000, timeout=0.2):
                error = message.error()
                if error is None:
                    partition, seen = _seen(message)
                    found[partition].records.append(seen)
                elif not is_passing(error):
                    raise KafkaException(error)
        return found
    finally:
        reading.close()


def _watermarks(reading: Consumer, partition: TopicPartition) -> tuple[int, int]:
    # A broker that has just come back may hang up on the first question.
    deadline = time.monotonic() + PATIENCE_SECONDS / 4
    while True:
        with suppress(KafkaException):
            return reading.get_watermark_offsets(Assigned(*partition), timeout=5)
        assert time.monotonic() < deadline, f"{partition} has no offsets"


class Scan:
    """What one scan found in one partition."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.records: list[Seen] = []

    @property
    def complete(self) -> bool:
        return self.start == self.end or (
            bool(self.records) and self.records[-1][0] >= self.end - 1
        )

    def final(self, partition: TopicPartition, directory: Path) -> FinalScan:
        """The same with the batches as they lie in the files of a stopped broker."""
        paths = sorted((directory / str(partition)).glob("*.log"))
        data = b"".join(path.read_bytes() for path in paths)
        return FinalScan(partition, self.start, self.end, tuple(self.records), data)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Progress is demanded: nobody waits for ever."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"no progress: {what}"
        time.sleep(0.001)
