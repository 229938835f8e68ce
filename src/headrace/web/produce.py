"""POST of records to a topic or to one of its partitions."""

from typing import Annotated, Literal

import msgspec

from headrace.core.errors import HeadraceError
from headrace.gateway import IdempotencyKeyReused, Produced
from headrace.web import bodies, media
from headrace.web.endpoint import send_answer
from headrace.web.errors import HttpError
from headrace.web.operations import Call, Operations
from headrace.web.produce_stream import StreamSummary, produce_failure, produce_lines
from headrace.web.record_formats import RecordIn, out_records

RECORDS = Operations("produce")

_KEY_CHARACTERS_MAX = 255
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class ProduceQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
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
    """Where a record went, or why it went nowhere."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class ProduceAnswer(msgspec.Struct):
    """One entry for each record, in the order of the records."""

    offsets: list[ProducedOffset]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


_decoder = msgspec.json.Decoder(ProduceBody)
_TAKES = (*media.RECORDS, media.NDJSON)
_GIVES = (media.JSON, media.KAFKA, media.KAFKA_JSON, media.KAFKA_BINARY, media.NDJSON)


@RECORDS.post(
    "/topics/{topic}",
    "Append records; each goes to the partition of its key, or to one after the other.",
    query=ProduceQuery,
    body=ProduceBody,
    consumes=_TAKES,
    answers=(ProduceAnswer, StreamSummary),
    produces=_GIVES,
    errors=(404, 409, 413, 415, 422, 503),
    headers=("Idempotency-Key",),
    is_raw=True,
)
async def to_topic(call: Call) -> None:
    await _produce(call, None)


@RECORDS.post(
    "/topics/{topic}/partitions/{partition}",
    "Append records to one partition.",
    query=ProduceQuery,
    body=ProduceBody,
    consumes=_TAKES,
    answers=(ProduceAnswer, StreamSummary),
    produces=_GIVES,
    errors=(404, 409, 413, 415, 422, 503),
    headers=("Idempotency-Key",),
    is_raw=True,
)
async def to_partition(call: Call) -> None:
    await _produce(call, call.number("partition"))


async def _produce(call: Call, partition: int | None) -> None:
    offered = media.content_type(call.header(b"content-type"), _TAKES)
    if offered == media.NDJSON:
        if call.header(b"idempotency-key") is not None:
            raise HttpError(422, "a stream of lines cannot have an Idempotency-Key")
        await produce_lines(call, partition, call.query.acks_number, call.query.timeout_ms)
        return
    key = _idempotency_key(call)
    body = await bodies.whole(call.receive, call.door.settings, call.header(b"content-length"))
    async with call.door.turns:
        decoded = bodies.decode(_decoder, body)
        _refuse_schemas(decoded)
        records = out_records(decoded.records, media.FORMATS[offered], partition)
    try:
        produced = await call.gateway.produce(
            call.path["topic"],
            records,
            acks=call.query.acks_number,
            timeout_ms=call.query.timeout_ms,
            key=key,
        )
    except IdempotencyKeyReused as error:
        raise HttpError(40906, error.message, hint=error.hint) from error
    await send_answer(call, 200, _answer(produced))


def _answer(produced: list[Produced]) -> ProduceAnswer:
    if all(each.error is not None for each in produced):
        # Nothing was appended: the request as a whole has failed.
        first = produced[0].error
        assert first is not None
        raise produce_failure(first)
    return ProduceAnswer(
        [
            ProducedOffset(partition, offset) if error is None else _failed(partition, error)
            for partition, offset, error in produced
        ]
    )


def _failed(partition: int, error: HeadraceError) -> ProducedOffset:
    told = produce_failure(error)
    return ProducedOffset(partition, None, told.error_code, told.message)


def _idempotency_key(call: Call) -> str | None:
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
