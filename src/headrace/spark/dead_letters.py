"""Records whose value could not be read, sent on to a topic with the reason in their headers."""

from types import TracebackType
from typing import Any

from headrace.client import Client, ClientSettings, FetchedChunk, Producer
from headrace.spark import columns
from headrace.spark.bad_values import BadValues
from headrace.spark.decode import Decoded, rows

REASON_HEADER = "headrace.error"
TOPIC_HEADER = "headrace.topic"
PARTITION_HEADER = "headrace.partition"
OFFSET_HEADER = "headrace.offset"


class DeadLetters:
    """Sends bad records; leaving it waits until every one of them is safe.

    At least once: a task that runs again sends its bad records again.
    """

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._client = Client(settings)
        self._topic = topic
        self._producer: Producer | None = None
        self._sent: list[Any] = []

    def __enter__(self) -> "DeadLetters":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.settle()
        finally:
            self._client.close()

    def send(self, decoded: Decoded, chunks: list[FetchedChunk], bad: BadValues) -> None:
        """Send these rows as they were read, with where they were and what is wrong."""
        found = rows(decoded, list(bad))
        keys = columns.binary(found.data, found.key).to_pylist()
        values = columns.binary(found.data, found.value).to_pylist()
        headers = columns.headers(found).to_pylist()
        if self._producer is None:
            self._producer = self._client.producer()
        for row, reason in enumerate(bad.values()):
            place = chunks[found.chunk[row]].partition
            told = [
                (REASON_HEADER, reason.encode()),
                (TOPIC_HEADER, place.topic.encode()),
                (PARTITION_HEADER, str(place.partition).encode()),
                (OFFSET_HEADER, str(found.offset[row]).encode()),
            ]
            kept = [(each["key"], each["value"]) for each in headers[row]]
            sent = self._producer.send(
                self._topic,
                values[row],
                key=keys[row],
                headers=kept + told,
                timestamp_ms=int(found.timestamp_ms[row]),
            )
            self._sent.append(sent)

    def settle(self) -> None:
        """Wait for what was sent; a record that was not taken fails the task."""
        if self._producer is not None:
            self._producer.flush()
        for sent in self._sent:
            sent.result()
        self._sent.clear()
