"""Fetch sessions (KIP-227): a broker remembers what is fetched, requests carry only changes.

no session --full fetch, epoch 0--> session given --changes, epoch 1, 2, ...--> ...
    ^                                                                           |
    +------------ the broker forgot it, or the connection was lost -------------+
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.core.errors import ErrorCode
from headrace.core.ids import TopicPartition
from headrace.protocol.messages.fetch import FetchPartition, ForgottenTopic

_EPOCH_MASK = 0x7FFFFFFF
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class SessionRequest(NamedTuple):
    """What a session adds to a fetch: its id and epoch, and which partitions to name."""

    session_id: int
    epoch: int
    named: list[TopicPartition]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """The session with one broker."""

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        # What the broker believes we want: (topic id, partition as last named).
        self._known: dict[TopicPartition, tuple[UUID, FetchPartition]] = {}

    def request(
        self, wanted: Mapping[TopicPartition, tuple[UUID, FetchPartition]]
    ) -> SessionRequest:
        """Say what has changed since the last request."""
        known = self._known if self._id else {}
        named = [partition for partition, want in wanted.items() if known.get(partition) != want]
        gone = [
            partition
            for partition, (topic_id, _) in known.items()
            if partition not in wanted or wanted[partition][0] != topic_id
        ]
        topics: dict[tuple[str, UUID], list[int]] = {}
        for partition in gone:
            topics.setdefault((partition.topic, known[partition][0]), []).append(
                partition.partition
            )
        forgotten = [
            ForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
            for (name, topic_id), numbers in topics.items()
        ]
        self._known = dict(wanted)
        return SessionRequest(self._id, self._epoch, named, forgotten)

    def on_response(self, session_id: int) -> None:
        """The broker has taken the request; it may have given us a session."""
        self._id = session_id
        # Epoch 0 asks for a new session, so after the last number comes 1.
        self._epoch = ((self._epoch & _EPOCH_MASK) % _EPOCH_MASK) + 1 if session_id else 0

    def reset(self) -> None:
        """Begin anew with the next request."""
        self._id = self._epoch = 0
        self._known = {}
