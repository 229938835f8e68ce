"""What the operations on a log that have a module of their own may use of it."""

import threading
from typing import Protocol

from headrace.core.files import FileSystem
from headrace.core.ids import Offset, TopicId
from headrace.core.runtime import Clock
from headrace.log.config import LogConfig
from headrace.log.leader_epoch_cache import LeaderEpochCache
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.log_flush import LogFlush
from headrace.log.producer_state import ProducerStates
from headrace.log.producer_state_manager import ProducerStateManager
from headrace.log.segments import LogSegments


class LogParts(Protocol):
    """The parts of a `PartitionLog` and where it begins and ends.

    `structure_lock` keeps apart those who change the segments in several steps with syncs between.
    `lock` guards all the rest, and is never held across a sync: appends wait for it. They are
    taken in this order.
    """

    files: FileSystem
    directory: str
    topic_id: TopicId | None
    config: LogConfig
    clock: Clock
    segments: LogSegments
    epochs: LeaderEpochCache
    producer_state: ProducerStateManager
    flush_state: LogFlush
    log_start_offset: Offset
    log_end_offset: Offset
    roll_limit_ms: int
    is_created: bool
    lock: threading.Lock
    structure_lock: threading.Lock

    def load_epochs(self) -> LeaderEpochs: ...

    def load_producers(self) -> ProducerStates: ...

    def flush(self) -> Offset: ...


def removal_due_ms(log: LogParts) -> float:
    """When files that are renamed now may go, by the monotonic clock."""
    return log.clock.monotonic_ms() + log.config.file_delete_delay_ms
