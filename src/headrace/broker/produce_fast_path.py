"""A fast path for a producer that writes to one partition again and again.

Such requests differ in nothing but correlation id and record batch. Once one has been accepted
its bytes before the batch are kept, and so is the response with blanks in it: the next request
that begins with the same bytes need not be decoded, nor its response encoded. Nothing is decided
here: whether the caller may write there now is asked of `admit`, what is appended of
`append_produced`, and what is waited for and said of `delayed_produce`, as for every other
request. Whatever is out of the ordinary goes the normal way; but not what was refused by the log,
which may have put its own offset into the batch by then. Only what succeeds is put into blanks.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Final, Protocol

from headrace.broker import leader_hints
from headrace.broker.connection import Connection, ResponseSlot
from headrace.broker.delayed_produce import (
    DelayedProduce,
    fill_appended,
    fill_error,
    must_wait,
)
from headrace.broker.handlers.produce import NO_THROTTLE_MS, admit
from headrace.broker.request import RequestOrigin
from headrace.broker.services import Services
from headrace.core.errors import HeadraceError
from headrace.core.files import Part
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
_LENGTH_SIZE: Final = 4
_CORRELATION_END: Final = 8
_INT: Final = Struct(">i").pack
# Values that stand out in an encoded response, to find the blanks by.
_BASE_OFFSET, _APPEND_TIME, _LOG_START = 0x5A17_0000_DEAD_0001, 0x5A17_0000_DEAD_0002, 1
_THROTTLE: Final = 0x5A17_0003

# Of a response: its length, and the bytes before, between and behind the blanks.
_Parts = tuple[int, bytes, bytes, bytes]


class _RepeatedRequest:
    """One request, as far as it is not like the others."""

    __slots__ = ("connection", "correlation_id", "first_header", "size", "started")

    def __init__(
        self,
        connection: Connection,
        first_header: RequestHeader,
        correlation_id: int,
        started: float,
        size: int,
    ) -> None:
        self.connection = connection
        self.first_header = first_header
        self.correlation_id = correlation_id
        self.started = started
        self.size = size

    @property
    def header(self) -> RequestHeader:
        return self.first_header._replace(correlation_id=self.correlation_id)

    @property
    def origin(self) -> RequestOrigin:
        return self.connection.origin


class ProduceFastPath:
    """One partition, one version, one kind of request, on one connection."""

    __slots__ = (
        "_acks",
        "_head",
        "_header",
        "_length_at",
        "_metrics",
        "_pack",
        "_parts",
        "_repeated_bytes",
        "_services",
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
        frame_layout, self._parts = _response_with_blanks(request, version)
        self._pack = frame_layout.pack

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
            response = self._partition_response()
            fill_error(error, partition, response)
            request = self._request(connection, correlation_id, started, frame)
            self._respond(request, connection.reserve_slot(), response)
        except OverBudget:
            return False
        else:
            if must_wait(partition, info, acks):
                response = self._partition_response()
                fill_appended(info, response)
                request = self._request(connection, correlation_id, started, frame)
                slot = connection.reserve_slot()
                delayed = DelayedProduce()
                delayed.wait_for(partition, info, response, connection)
                respond = partial(self._respond, request, slot, response)
                delayed.start(self._timeout_seconds, respond)
            else:
                first, _, time_ms, log_start, _ = info
                connection.send_in_turn(self._frame(correlation_id, first, time_ms, log_start))
                seconds = metrics.count_time(started)
                if seconds > metrics.log_threshold_seconds:
                    request = self._request(connection, correlation_id, started, frame)
                    metrics.log_request(request, seconds)
        return True

    def _request(
        self, connection: Connection, correlation_id: int, started: float, frame: memoryview
    ) -> _RepeatedRequest:
        return _RepeatedRequest(connection, self._header, correlation_id, started, len(frame))

    def _partition_response(self) -> PartitionProduceResponse:
        return PartitionProduceResponse(index=self._target[2], base_offset=-1, log_start_offset=-1)

    def _respond(
        self, request: _RepeatedRequest, slot: ResponseSlot, response: PartitionProduceResponse
    ) -> None:
        """Answer one that had to wait, or was refused."""
        connection, correlation_id = request.connection, request.correlation_id
        whole: ProduceResponse | None = None
        parts: Sequence[Part]
        if response.error_code:
            name, topic_id, _ = self._target
            topic = TopicProduceResponse(
                name=name, topic_id=topic_id, partition_responses=[response]
            )
            whole = ProduceResponse(responses=[topic], throttle_time_ms=NO_THROTTLE_MS)
            leader_hints.add_to_produce(self._services, request.origin, self._version, whole)
            parts = encode_response_parts(whole, self._version, correlation_id)
        else:
            frame = self._frame(
                correlation_id,
                response.base_offset,
                response.log_append_time_ms,
                response.log_start_offset,
            )
            parts = (frame,)
        connection.fill(slot, parts)
        self._metrics.count_request(request, whole)

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

    def _frame(self, correlation_id: int, base_offset: int, time_ms: int, log_start: int) -> bytes:
        """The whole response to a batch that is where it should be."""
        size, before, middle, after = self._parts
        if self._version >= _LOG_START_SINCE:
            return self._pack(
                size,
                correlation_id,
                before,
                base_offset,
                time_ms,
                log_start,
                middle,
                NO_THROTTLE_MS,
                after,
            )
        return self._pack(
            size, correlation_id, before, base_offset, time_ms, middle, NO_THROTTLE_MS, after
        )


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


def _response_with_blanks(request: ProduceRequest, version: int) -> tuple[Struct, _Parts]:
    """The frame of the response to a batch that was appended, as the encoder lays it out."""
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
        ],
        throttle_time_ms=_THROTTLE,
    )
    frame = encode_response(example, version, 0)
    offsets = Struct(">qqq" if version >= _LOG_START_SINCE else ">qq")
    values = (_BASE_OFFSET, _APPEND_TIME, _LOG_START)[: offsets.size // 8]
    before, found, rest = frame.partition(offsets.pack(*values))
    middle, also_found, after = rest.partition(_INT(_THROTTLE))
    assert found, "the response's layout has changed"
    assert also_found, "the response's layout has changed"
    before = before[_CORRELATION_END:]
    layout = f"ii{len(before)}s{offsets.format[1:]}{len(middle)}si{len(after)}s"
    return Struct(">" + layout), (len(frame) - _LENGTH_SIZE, before, middle, after)
