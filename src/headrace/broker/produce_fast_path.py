"""A fast path for a producer that writes to one partition again and again.

Such requests differ in nothing but correlation id and record batch. Once one has been accepted
its bytes before the batch are kept, and so is the answer with blanks in it: the next request that
begins with the same bytes need not be decoded, nor its answer encoded. Nothing is decided here:
whether the caller may write there now is asked of `admit`, what is appended of `append_produced`,
as for every other request. Whatever is out of the ordinary goes the normal way; but not what was
refused by the log, which may have put its own offset into the batch by then.
"""

import asyncio
from struct import Struct
from typing import Final, NamedTuple, Protocol

from headrace.broker.connection import Connection, ResponseSlot
from headrace.broker.handlers.produce import ACKS_ALL, admit, fill_error
from headrace.broker.request import RequestOrigin
from headrace.broker.services import Services
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import Offset
from headrace.log.partition_log import AppendInfo
from headrace.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from headrace.protocol.frames import RequestHeader, encode_response, encode_response_parts
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.records.budget import OverBudget
from headrace.protocol.wire import decode_varint
from headrace.replication.partition import Partition
from headrace.replication.produce import append_produced

_FLEXIBLE: Final = FLEXIBLE_FROM[ApiKey.PRODUCE]
_LOG_START_SINCE: Final = 5
# Closing tag counts of partition, topic and request, all of them empty.
_NO_TAGS: Final = memoryview(b"\0\0\0")
_HEAD: Final = Struct(">Ii").unpack_from
_LENGTH: Final = Struct(">i").unpack_from
_PREFIX: Final = Struct(">ii").pack
_CORRELATION_END: Final = 8
# Values that stand out in an encoded answer, to find the blanks by.
_BASE_OFFSET, _APPEND_TIME, _LOG_START = 0x5A17_0000_DEAD_0001, 0x5A17_0000_DEAD_0002, 1


class _LoggedRequest(NamedTuple):
    """What is said of one that was slow."""

    header: RequestHeader
    origin: RequestOrigin
    size: int


class ProduceFastPath:
    """One partition, one version, one kind of request, on one connection."""

    __slots__ = (
        "_acks",
        "_after",
        "_before",
        "_blanks",
        "_head",
        "_header",
        "_length_at",
        "_metrics",
        "_repeated_bytes",
        "_services",
        "_size",
        "_target",
        "_timeout_seconds",
        "_version",
    )

    def __init__(
        self,
        services: Services,
        frame: memoryview,
        header: RequestHeader,
        request: ProduceRequest,
    ) -> None:
        """`request` is what `frame` holds, and has one topic and one partition."""
        version = header.api_version
        topic = request.topic_data[0]
        records = topic.partition_data[0].records
        assert records is not None
        self._services = services
        self._header = header
        self._metrics = services.request_metrics.for_api(ApiKey.PRODUCE)
        self._version = version
        self._target = (topic.name, topic.topic_id, topic.partition_data[0].index)
        self._acks = request.acks
        self._timeout_seconds = request.timeout_ms / 1000
        trailer = len(_NO_TAGS) if version >= _FLEXIBLE else 0
        length_size = _length_size(len(records)) if version >= _FLEXIBLE else 4
        self._length_at = len(frame) - trailer - len(records) - length_size
        self._head = _HEAD(frame)[0]
        self._repeated_bytes = bytes(frame[_CORRELATION_END : self._length_at])
        self._before, self._blanks, self._after = _response_with_blanks(request, version)
        self._size = 4 + len(self._before) + self._blanks.size + len(self._after)

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Append and answer, if this is the same request once more; else nothing happens."""
        metrics = self._metrics
        started = metrics.now()
        head, correlation_id = _HEAD(frame)
        if (
            head != self._head
            or frame[_CORRELATION_END : self._length_at] != self._repeated_bytes
            or metrics.log_threshold_seconds < 0  # each request is to leave a line
        ):
            return False
        records = self._records(frame)
        if records is None:
            return False
        services = self._services
        acks = self._acks
        partition = admit(
            services, connection.origin, self._header.client_id, self._version, acks, *self._target
        )
        if partition is None:
            return False
        try:
            info = append_produced(
                partition,
                records,
                acks=acks,
                now_ms=services.clock.now_ms(),
                produce_version=self._version,
                budget=services.record_work,
            )
        except HeadraceError as error:
            self._refuse(connection, partition, correlation_id, error, started, len(frame))
            return True
        except OverBudget:
            return False
        if acks == ACKS_ALL and not partition.is_committed(Offset(info.last_offset + 1)):
            delayed = _DelayedFastProduce(
                self, connection, correlation_id, info, started, len(frame)
            )
            end = Offset(info.last_offset + 1)
            partition.when_committed(end, delayed.committed, connection)
            delayed.start_timer(self._timeout_seconds)
        else:
            first, _, time_ms, log_start, _ = info
            connection.send_in_turn(
                self.response_frame(correlation_id, 0, first, time_ms, log_start)
            )
            self.measure(connection, correlation_id, started, len(frame), ErrorCode.NONE)
        return True

    def _refuse(
        self,
        connection: Connection,
        partition: Partition,
        correlation_id: int,
        error: HeadraceError,
        started: float,
        size: int,
    ) -> None:
        """Nothing was appended; answer as the normal way would."""
        name, topic_id, index = self._target
        partition_response = PartitionProduceResponse(
            index=index, base_offset=-1, log_start_offset=-1
        )
        fill_error(error, partition, partition_response)
        topic = TopicProduceResponse(
            name=name, topic_id=topic_id, partition_responses=[partition_response]
        )
        response = ProduceResponse(responses=[topic])
        slot = connection.reserve_slot()
        connection.fill(slot, encode_response_parts(response, self._version, correlation_id))
        self.measure(connection, correlation_id, started, size, error.code)

    def _records(self, frame: memoryview) -> memoryview | None:
        """The record batch; None if the frame does not end right behind it."""
        size = len(frame)
        try:
            if self._version >= _FLEXIBLE:
                length, start = decode_varint(frame, self._length_at)
                stop = start + length - 1
                if stop + len(_NO_TAGS) != size or frame[stop:] != _NO_TAGS:
                    return None
            else:
                start = self._length_at + 4
                stop = start + _LENGTH(frame, self._length_at)[0]
                if stop != size:
                    return None
        except (HeadraceError, IndexError, ValueError):
            return None
        return frame[start:stop] if start < stop else None

    def response_frame(
        self, correlation_id: int, error_code: int, base_offset: int, time_ms: int, log_start: int
    ) -> bytes:
        """The whole frame."""
        blanks = self._blanks
        filled = (
            blanks.pack(error_code, base_offset, time_ms, log_start)
            if self._version >= _LOG_START_SINCE
            else blanks.pack(error_code, base_offset, time_ms)
        )
        return b"".join((_PREFIX(self._size, correlation_id), self._before, filled, self._after))

    def measure(
        self,
        connection: Connection,
        correlation_id: int,
        started: float,
        size: int,
        outcome: ErrorCode,
    ) -> None:
        metrics = self._metrics
        seconds = metrics.now() - started
        metrics.times.observe(seconds)
        if outcome:
            metrics.errors[outcome] = metrics.errors.get(outcome, 0) + 1
        if seconds > metrics.log_threshold_seconds:
            header = self._header._replace(correlation_id=correlation_id)
            metrics.log_request(_LoggedRequest(header, connection.origin, size), seconds)


class _DelayedFastProduce:
    """A batch that is written; what it takes to answer once it is committed."""

    __slots__ = (
        "_fast_path",
        "_info",
        "_slot",
        "_timer",
        "connection",
        "correlation_id",
        "size",
        "started",
    )

    def __init__(
        self,
        fast_path: ProduceFastPath,
        connection: Connection,
        correlation_id: int,
        info: AppendInfo,
        started: float,
        size: int,
    ) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.started = started
        self.size = size
        self._fast_path = fast_path
        self._slot: ResponseSlot | None = connection.reserve_slot()
        self._info = info
        self._timer: asyncio.TimerHandle | None = None

    def start_timer(self, seconds: float) -> None:
        if self._slot is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._timed_out)

    def committed(self, outcome: ErrorCode) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._finish(outcome)

    def _timed_out(self) -> None:
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def _finish(self, outcome: ErrorCode) -> None:
        slot, self._slot = self._slot, None
        if slot is None:
            return
        base_offset, _, time_ms, log_start, _ = self._info
        fast_path = self._fast_path
        frame = fast_path.response_frame(
            self.correlation_id, outcome, base_offset, time_ms, log_start
        )
        self.connection.fill(slot, (frame,))
        fast_path.measure(self.connection, self.correlation_id, self.started, self.size, outcome)


class ProduceState(Protocol):
    """What is remembered of the produce requests of one connection."""

    produced_last: Partition | None
    produce_fast_path: ProduceFastPath | None


def observe(
    services: Services,
    state: ProduceState,
    frame: memoryview,
    header: RequestHeader,
    request: ProduceRequest,
    appended_to: Partition | None,
) -> None:
    """Take note of a produce that went the normal way; the second in a row makes a path.

    `appended_to` is its only partition, None if it was refused or has several.
    """
    if (
        appended_to is None
        or request.acks == 0
        or request.transactional_id is not None
        or (header.api_version >= _FLEXIBLE and frame[-3:] != _NO_TAGS)
    ):
        state.produced_last = None
    elif state.produced_last is not appended_to:
        state.produced_last = appended_to
    else:
        state.produce_fast_path = ProduceFastPath(services, frame, header, request)


def _length_size(length: int) -> int:
    """Bytes of a compact length field."""
    return max(1, ((length + 1).bit_length() + 6) // 7)


def _response_with_blanks(request: ProduceRequest, version: int) -> tuple[bytes, Struct, bytes]:
    """The answer's bytes behind the correlation id: before the blanks, their shape, after them."""
    topic = request.topic_data[0]
    example = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=topic.partition_data[0].index,
                        base_offset=_BASE_OFFSET,
                        log_append_time_ms=_APPEND_TIME,
                        log_start_offset=_LOG_START,
                    )
                ],
            )
        ]
    )
    frame = encode_response(example, version, 0)
    with_start = version >= _LOG_START_SINCE
    blanks = Struct(">hqqq" if with_start else ">hqq")
    values = (0, _BASE_OFFSET, _APPEND_TIME, _LOG_START)
    filled = blanks.pack(*values[: 4 if with_start else 3])
    before, found, after = frame.partition(filled)
    assert found, "the answer's layout has changed"
    return before[_CORRELATION_END:], blanks, after
