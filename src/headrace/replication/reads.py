"""How somebody reads a partition: from where, up to where, and what was found."""

from enum import IntEnum
from typing import Final, NamedTuple

from headrace.core.files import FileRange
from headrace.core.ids import Offset
from headrace.log.leader_epochs import EpochEntry

# The isolation level on the wire.
_READ_COMMITTED: Final = 1


class FetchIsolation(IntEnum):
    """Up to where somebody reads; the names are Kafka's."""

    LOG_END = 0
    """Followers: what is written."""
    HIGH_WATERMARK = 1
    """Consumers: what is committed."""
    TXN_COMMITTED = 2
    """Consumers with read_committed: what no open transaction is part of."""

    @classmethod
    def of(cls, replica_id: int, isolation_level: int) -> "FetchIsolation":
        """That of a request; `replica_id` is -1 where a consumer asks."""
        if replica_id >= 0:
            return cls.LOG_END
        return cls.TXN_COMMITTED if isolation_level == _READ_COMMITTED else cls.HIGH_WATERMARK


class FetchPosition(NamedTuple):
    """Where a reader goes on, and what it believes; epochs that it does not know are -1."""

    offset: Offset
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class ReadInfo(NamedTuple):
    """What a read found, and the offsets of that moment."""

    records: FileRange | None
    next_offset: int
    """Behind the last batch found."""
    diverging: EpochEntry | None
    """The reader's log is another one: up to here both may be the same. Nothing is read then."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
