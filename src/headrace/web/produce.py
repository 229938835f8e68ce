"""POST of records to a topic or to one of its partitions.

Records are read, appended and answered some hundred at a time; in between the event loop serves
everybody else.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from headrace.core.errors import ErrorCode, HeadraceError
from headrace.gateway import IdempotencyKeyReused, NotAttempted, OutRecord, Produced
from headrace.web import bodies, media
from headrace.web.call import HttpCall
from headrace.web.errors import (
    FORBIDDEN,
    NOT_ALLOWED,
    RETRY,
    TOO_MANY_RECORDS,
    UNEXPECTED,
    HttpError,
    is_transient,
)
from headrace.web.operations import Operations
from headrace.web.produce_stream import StreamSummary, produce_failure, produce_lines
from headrace.web.record_counts import count_records, records_at_most
from headrace.web.record_formats import RecordIn, out_records
from headrace.web.route_handler import send_response

RECORDS = Operations("produce")

T = TypeVar("T")

RECORDS_MAX: Final = 40_000
"""Records of one request; a stream of lines may have any number."""
KEYED_RECORDS_MAX: Final = 5_000
"""Records of one request with an Idempotency-Key: they are claimed and sent all at once."""
SLICE_RECORDS: Final = 300

_KEY_CHARACTERS_MAX = 255
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class ProduceQuery(msgspec.Struct, frozen=True):
    """How safe the records must be before the answer is sent."""

    acks: Annotated[
        Literal["all", "-1", "1", "0"],
        msgspec.Meta(
            description="all: on every in-sync replica; 1: on the leader; 0: do not wait."
        ),
    ] = "all"
    timeout_ms: Annotated[
        int, msgspec.Meta(ge=1, le=600_000, description="How long to wait for that.")
    ] = 30_000

    @property
    def acks_number(self) -> int:
        return _ACKS[self.acks]


class ProduceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Records to append. Schemas are known here only to be refused with a reason."""

    records: Annotated[list[RecordIn], msgspec.Meta(min_length=1)]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class ProducedOffset(msgspec.Struct):
    """Where a record went, or why it went nowhere.

    The codes are those of REST Proxy: 50003 if it may be sent again, 50002 if not, 40301 if it is
    not allowed. Kafka's own name of the error tells more.
    """

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None
    kafka_error: str | msgspec.UnsetType = msgspec.UNSET


class ProduceAnswer(msgspec.Struct):
    """One entry for each record, in the order of the records."""

    offsets: list[ProducedOffset]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


_decoder = msgspec.json.Decoder(ProduceBody)
_encode = msgspec.json.Encoder().encode
_REQUEST_TYPES = (*media.RECORDS, media.NDJSON)
_RESPONSE_TYPES = (*media.PROXY, media.NDJSON)


@RECORDS.post(
    "/topics/{topic}",
    "Append records; each goes to the partition of its key, or to one after the other.",
    query=ProduceQuery,
    body=ProduceBody,
    consumes=_REQUEST_TYPES,
    response=(ProduceAnswer, StreamSummary),
    produces=_RESPONSE_TYPES,
    errors=(404, 409, 413, 415, 422, 429),
    headers=("Idempotency-Key",),
    is_raw=True,
)
async def to_topic(call: HttpCall) -> None:
    await _produce(call, None)


@RECORDS.post(
    "/topics/{topic}/partitions/{partition}",
    "Append records to one partition.",
    query=ProduceQuery,
    body=ProduceBody,
    consumes=_REQUEST_TYPES,
    response=(ProduceAnswer, StreamSummary),
    produces=_RESPONSE_TYPES,
    errors=(404, 409, 413, 415, 422, 429),
    headers=("Idempotency-Key",),
    is_raw=True,
)
async def to_partition(call: HttpCall) -> None:
    await _produce(call, call.number("partition"))


async def _produce(call: HttpCall, partition: int | None) -> None:
    offered = media.content_type(call.header(b"content-type"), _REQUEST_TYPES)
    if offered == media.NDJSON:
        if call.header(b"idempotency-key") is not None:
            raise HttpError(422, "a stream of lines cannot have an Idempotency-Key")
        await produce_lines(call, partition, call.query.acks_number, call.query.timeout_ms)
        return
    key = _idempotency_key(call)
    body = await bodies.read_whole(call)
    await _check_count(call, body, RECORDS_MAX if key is None else KEYED_RECORDS_MAX)
    async with call.state.loop_slices:
        decoded = bodies.decode(_decoder, body, wrong_type=400)
    _refuse_schemas(decoded)
    records: list[OutRecord] = []
    for some in _slices(decoded.records):
        async with call.state.loop_slices:
            records += out_records(some, media.FORMATS[offered], partition, first=len(records))
    if key is None:
        produced = await _append(call, records)
    else:
        produced = await _append_once(call, records, key)
    await send_response(call, _status(produced), await _response(call, produced))


async def _check_count(call: HttpCall, body: bytes, limit: int) -> None:
    """Refuse too many records before any is made."""
    if records_at_most(body) <= limit:
        return
    counting = count_records(body)
    while True:
        async with call.state.loop_slices:
            count = next(counting, None)
        if count is None:
            return
        if count > limit:
            raise HttpError(
                TOO_MANY_RECORDS,
                f"the body has more than {limit} records",
                hint="send fewer at once, or stream application/x-ndjson to POST /topics/{topic}",
            )


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    if len(items) <= SLICE_RECORDS:
        yield items
        return
    for start in range(0, len(items), SLICE_RECORDS):
        yield items[start : start + SLICE_RECORDS]


async def _append(call: HttpCall, records: Sequence[OutRecord]) -> list[Produced]:
    """Slice after slice; where one cannot be sent, what comes behind it fails like it."""
    now = asyncio.get_running_loop().time
    deadline = now() + call.query.timeout_ms / 1000
    produced: list[Produced] = []
    for some in _slices(records):
        left_ms = max(1, round((deadline - now()) * 1000))
        try:
            produced += await call.gateway.produce(
                call.path["topic"], some, acks=call.query.acks_number, timeout_ms=left_ms
            )
        except HeadraceError as error:
            if not produced:
                raise
            behind = records[len(produced) :]
            produced += [Produced(each.partition or 0, -1, error) for each in behind]
            break
        if len(some) < len(records):
            await asyncio.sleep(0)
    return produced


async def _append_once(call: HttpCall, records: Sequence[OutRecord], key: str) -> list[Produced]:
    try:
        return await call.gateway.produce(
            call.path["topic"],
            records,
            acks=call.query.acks_number,
            timeout_ms=call.query.timeout_ms,
            key=key,
        )
    except IdempotencyKeyReused as error:
        raise HttpError(40906, error.message, hint=error.hint) from error


def _status(produced: Sequence[Produced]) -> int:
    """Each record tells of its failure; the status tells only of what is forbidden."""
    codes = {each.error.code for each in produced if each.error is not None}
    return 200 if codes.isdisjoint(FORBIDDEN) else 403


async def _response(call: HttpCall, produced: Sequence[Produced]) -> ProduceAnswer | bytes:
    if len(produced) <= SLICE_RECORDS:
        return ProduceAnswer(_offsets(produced))
    head, tail = _encode(ProduceAnswer([])).split(b"[]")
    pieces: list[bytes] = []
    for some in _slices(produced):
        async with call.state.loop_slices:
            pieces.append(_encode(_offsets(some))[1:-1])
    return b"%b[%b]%b" % (head, b",".join(pieces), tail)


def _offsets(produced: Sequence[Produced]) -> list[ProducedOffset]:
    return [
        ProducedOffset(partition, offset) if error is None else _failed(error)
        for partition, offset, error in produced
    ]


def _failed(error: HeadraceError) -> ProducedOffset:
    failure = produce_failure(error)
    name = msgspec.UNSET if failure.kafka_error is None else failure.kafka_error
    return ProducedOffset(None, None, _code(error), failure.message, name)


def _code(error: HeadraceError) -> int:
    if error.code in FORBIDDEN:
        return NOT_ALLOWED
    # A partition that is not there will not be there soon, whatever Kafka's clients do about it.
    is_there = error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return (
        RETRY
        if isinstance(error, NotAttempted) or (is_transient(error) and is_there)
        else UNEXPECTED
    )


def _idempotency_key(call: HttpCall) -> str | None:
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1").strip()
    if not key or len(key) > _KEY_CHARACTERS_MAX:
        raise HttpError(422, f"an Idempotency-Key has 1 to {_KEY_CHARACTERS_MAX} characters")
    return key


def _refuse_schemas(body: ProduceBody) -> None:
    schemas = (body.key_schema, body.key_schema_id, body.value_schema, body.value_schema_id)
    if any(schema is not None for schema in schemas):
        raise HttpError(
            42205,
            "schemas need a schema registry, which this broker has not",
            hint=f"send the records as {media.KAFKA_JSON} without a schema",
        )
