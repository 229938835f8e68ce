"""What a producer is told of a batch and when, whichever way its request came.

appended, and that is enough          the response leaves at once
appended, acks=all                    when it is below the high watermark, or never will be,
                                      or the request's time is up
refused                               at once, with the reason
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.core.errors import ErrorCode, HeadraceError, InvalidRecord
from headrace.core.ids import Offset
from headrace.log.partition_log import AppendInfo
from headrace.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from headrace.protocol.records.validate import NotOneBatch
from headrace.replication.partition import ACKS_ALL, Partition

# Errors that Kafka finds before it looks at the log, or in the log's own state; with all others
# the response says where the log starts, so that the producer can tell an expired sequence.
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


def must_wait(partition: Partition, info: AppendInfo, acks: int) -> bool:
    """Whether a batch that was appended has to be on other replicas, or on disk, first."""
    return acks == ACKS_ALL and not partition.is_committed(Offset(info.last_offset + 1))


def fill_appended(info: AppendInfo, response: PartitionProduceResponse) -> None:
    """Say where the batch is."""
    response.base_offset = info.first_offset
    response.log_append_time_ms = info.append_time_ms
    response.log_start_offset = info.log_start_offset


def fill_error(
    error: HeadraceError, partition: Partition, response: PartitionProduceResponse
) -> None:
    """Say why nothing was appended."""
    response.error_code = error.code
    response.error_message = str(error) or None
    if error.code not in _WITHOUT_LOG_START and not isinstance(error, NotOneBatch):
        response.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidRecord):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


class DelayedProduce:
    """The batches of one request that are appended and not yet committed."""

    __slots__ = ("_missing", "_respond", "_timer")

    def __init__(self) -> None:
        self._missing = 0
        self._respond: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(
        self,
        partition: Partition,
        info: AppendInfo,
        response: PartitionProduceResponse,
        requester: object,
    ) -> None:
        """To be called right behind the append: who waits is called in the order of offsets."""
        self._missing += 1
        # Until committed the response says what a timeout would have to say.
        response.error_code = ErrorCode.REQUEST_TIMED_OUT

        def committed(outcome: ErrorCode) -> None:
            # The offset stays whatever the outcome: it tells a producer that the batch was
            # appended, so that "not the leader" does not read as "nothing was written".
            response.error_code = outcome
            self._missing -= 1
            if not self._missing:
                self._finish()

        partition.when_committed(Offset(info.last_offset + 1), committed, requester)

    def start(self, timeout_seconds: float, respond: Callable[[], None]) -> None:
        """All that has to be waited for is known; `respond` is called once, when all of it is
        committed, or failed, or the time is up."""
        self._respond = respond
        if self._missing:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout_seconds, self._finish)
        else:
            self._finish()

    def _finish(self) -> None:
        respond, self._respond = self._respond, None
        if respond is None:
            return  # not started yet, or answered by the timer
        if self._timer is not None:
            self._timer.cancel()
        respond()
