"""Wait for the disk before speaking of the end of a log.

A producer with acks=1 has its answer before the flush. Asking for the end of the log next, it
must find what it wrote, as on a broker whose high watermark does not wait for a disk.
"""

from collections.abc import Callable, Iterable

from headrace.core.errors import ErrorCode
from headrace.replication.partition import Partition


def unsettled(partitions: Iterable[Partition | None]) -> dict[Partition, None]:
    """Those whose written records are still on their way to the disk."""
    return {
        partition: None
        for partition in partitions
        if partition is not None
        and partition.high_watermark < partition.log.log_end_offset
        and partition.log.failure is None
        and not partition.retired
    }


def when_settled(partitions: Iterable[Partition], call: Callable[[], None]) -> None:
    """Call once all that is written now is committed, or never will be."""
    missing = list(partitions)

    def one_less(_: ErrorCode) -> None:
        missing.pop()
        if not missing:
            call()

    if not missing:
        call()
        return
    for partition in tuple(missing):
        partition.when_committed(partition.log.log_end_offset, one_less)
