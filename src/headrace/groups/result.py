"""One step of a shard: what it was given, what it decided, and whom it answers."""

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.groups.records import GroupRecord, encode
from headrace.groups.settings import GroupSettings
from headrace.metadata.image import Image
from headrace.protocol.message import Message

Reply = object
"""Whoever waits for an answer; the machine only carries it around."""


EncodedRecord = tuple[bytes, bytes | None]


class ClientInfo(NamedTuple):
    """Who sent a request, as members are remembered."""

    client_id: str
    client_host: str
    api_version: int
    new_member_id: str
    """An id that nobody has, for whoever comes without one."""


class PendingReply(NamedTuple):
    reply: Reply
    response: Message


@dataclass(slots=True)
class Result:
    """Collects records and answers; the answers may leave once the records are committed.

    A shard changes its state while it decides. Records are encoded when they are handed over, all
    of a call or none, and what cannot be encoded raises: so whoever appends first and changes the
    state then leaves no trace of a decision that cannot be written.
    """

    now_ms: int
    """Monotonic, for deadlines."""
    time_ms: int
    """Wall clock, for what is written down."""
    settings: GroupSettings
    image: Image = field(default_factory=lambda: Image(""))
    """The cluster as it is now: topics that groups read, configs of groups."""
    records: list[GroupRecord] = field(default_factory=list)
    encoded: list[EncodedRecord] = field(default_factory=list)
    """Keys and values of `records` as they are appended."""
    replies: list[PendingReply] = field(default_factory=list)

    def append(self, *records: GroupRecord) -> None:
        """Append these; the caller brings them into the state as soon as this returns."""
        encoded = [encode(record) for record in records]
        self.records += records
        self.encoded += encoded

    def reply(self, reply: Reply, response: Message) -> None:
        self.replies.append(PendingReply(reply, response))
