"""Records whose value could not be read, sent on to a topic with the reason in their headers."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from headrace.client import Client, ClientSettings, FetchedChunk, Producer, RecordMetadata
from headrace.core.errors import ApiError, ErrorCode
from headrace.spark import columns
from headrace.spark.bad_values import BadValues
from headrace.spark.decode import Decoded, rows

REASON_HEADER: Final = "headrace.error"
TOPIC_HEADER: Final = "headrace.topic"
PARTITION_HEADER: Final = "headrace.partition"
OFFSET_HEADER: Final = "headrace.offset"
TIMESTAMP_HEADER: Final = "headrace.timestamp"
CUT_HEADER: Final = "headrace.cut"
# How much of each part is kept of a letter that its topic does not take whole: a good deal, then
# what any topic takes. The record it was can be looked up by its place.
_KEPT_BYTES: Final = (256 * 1024, 1024)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    """A record, and what is told about it."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    reasons: list[Header]

    def shortened(self, most: int) -> "_DeadLetter":
        """The same with no part above `most` bytes, and the sizes of those that were."""
        headers_size = sum(len(name) + len(value or b"") for name, value in self.headers)
        sizes = {
            "key": len(self.key or b""),
            "value": len(self.value or b""),
            "headers": headers_size,
        }
        said = ", ".join(f"{part} of {size} bytes" for part, size in sizes.items() if size > most)
        reasons: list[Header] = [(name, (value or b"")[:most]) for name, value in self.reasons]
        return _DeadLetter(
            None if self.key is None else self.key[:most],
            None if self.value is None else self.value[:most],
            self.headers if headers_size <= most else [],
            [*reasons, (CUT_HEADER, said.encode())] if said else reasons,
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """A letter under way, and how often it was made shorter for it."""

    letter: _DeadLetter
    cuts: int
    delivery: Future[RecordMetadata]


class DeadLetters:
    """Sends bad records; leaving it waits until every one of them is safe.

    At least once: a task that runs again sends its bad records again.
    """

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._client = Client(settings)
        self._topic = topic
        self._producer: Producer | None = None
        self._sent: deque[_Sent] = deque()

    def __enter__(self) -> "DeadLetters":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # A read that is broken off has its letters; a task that failed sends them again, and
            # what it failed of must not be hidden by what became of them.
            if error is None or isinstance(error, GeneratorExit):
                self.flush()
        finally:
            self._client.close()

    def send(self, decoded: Decoded, chunks: list[FetchedChunk], bad: BadValues) -> None:
        """Send these rows as they were read, with where they were and what is wrong.

        Their time is now: retention would take the letters of old records at once.
        """
        found = rows(decoded, list(bad))
        keys = columns.binary(found.data, found.key).to_pylist()
        values = columns.binary(found.data, found.value).to_pylist()
        headers = columns.headers(found).to_pylist()
        for row, reason in enumerate(bad.values()):
            partition = chunks[found.chunk[row]].partition
            reasons: list[Header] = [
                (REASON_HEADER, reason.encode()),
                (TOPIC_HEADER, partition.topic.encode()),
                (PARTITION_HEADER, str(partition.partition).encode()),
                (OFFSET_HEADER, str(found.offset[row]).encode()),
                (TIMESTAMP_HEADER, str(found.timestamp_ms[row]).encode()),
            ]
            kept = [(each["key"], each["value"]) for each in headers[row]]
            self._send(_DeadLetter(keys[row], values[row], kept, reasons))
            while self._sent and self._sent[0].delivery.done():
                self._complete(self._sent.popleft())

    def flush(self) -> None:
        """Wait for what was sent; a record that was not taken fails the task."""
        while self._sent:  # those that were too large are sent again
            assert self._producer is not None
            self._producer.flush()
            for _ in range(len(self._sent)):
                self._complete(self._sent.popleft())

    def _send(self, letter: _DeadLetter, cuts: int = 0) -> None:
        if self._producer is None:
            self._producer = self._client.producer()
        sent = letter.shortened(_KEPT_BYTES[cuts - 1]) if cuts else letter
        headers = sent.headers + sent.reasons
        delivery = self._producer.send(self._topic, sent.value, key=sent.key, headers=headers)
        self._sent.append(_Sent(letter, cuts, delivery))

    def _complete(self, sent: _Sent) -> None:
        try:
            sent.delivery.result()
        except ApiError as error:
            if error.code not in _TOO_LARGE or sent.cuts == len(_KEPT_BYTES):
                raise
            self._send(sent.letter, sent.cuts + 1)
