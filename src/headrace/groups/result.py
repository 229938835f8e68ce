"""One step of a shard: what it was given, what it decided, and whom it answers."""

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.groups.records import GroupRecord, encode
from headrace.groups.settings import GroupSettings
from headrace.metadata.image import Image
from headrace.protocol.message import Message

Reply = object
"""Whoever waits for an answer; the machine only carries it around."""


class ClientInfo(NamedTuple):
    """Who sent a request, as members are remembered."""

    client_id: str
    client_host: str
    api_version: int
    new_member_id: str
    """An id that nobody has, for whoever comes without one."""


class PendingRecord(NamedTuple):
    """A record to append; `applied` where the step itself changes the state."""

    record: GroupRecord
    is_applied: bool
    encoded: tuple[bytes, bytes | None]
    """Key and value as they are appended."""


class PendingReply(NamedTuple):
    reply: Reply
    response: Message


@dataclass(slots=True)
class Result:
    """Collects records and answers; the answers may leave once the records are committed.

    Records are encoded when they are handed over, and what cannot be encoded raises: so whoever
    writes first and changes the state then leaves no trace of a step that cannot be written.
    """

    now_ms: int
    """Monotonic, for deadlines."""
    time_ms: int
    """Wall clock, for what is written down."""
    settings: GroupSettings
    image: Image = field(default_factory=lambda: Image(""))
    """The cluster as it is now: topics that groups read, configs of groups."""
    pending_records: list[PendingRecord] = field(default_factory=list)
    pending_replies: list[PendingReply] = field(default_factory=list)

    def append(self, record: GroupRecord) -> None:
        """Append this and then apply it."""
        self.pending_records.append(PendingRecord(record, is_applied=False, encoded=encode(record)))

    def append_applied(self, record: GroupRecord) -> None:
        """Append what the step itself brings into the state, as soon as this returns."""
        self.pending_records.append(PendingRecord(record, is_applied=True, encoded=encode(record)))

    def reply(self, reply: Reply, response: Message) -> None:
        self.pending_replies.append(PendingReply(reply, response))

    @property
    def records(self) -> list[GroupRecord]:
        return [write.record for write in self.pending_records]
