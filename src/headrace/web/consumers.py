"""Consumer instances over HTTP, as REST Proxy v2 has them."""

from collections.abc import Mapping
from urllib.parse import quote

from headrace.client.core.group_models import CommittedOffset
from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec
from headrace.core.ids import TopicPartition
from headrace.gateway import MemberSettings
from headrace.groups.consumer.patterns import matching
from headrace.web import media
from headrace.web.call import HttpCall, while_connected
from headrace.web.consumer_types import (
    WAIT_MS_MAX,
    InstanceMade,
    NewInstance,
    Offsets,
    OffsetsToCommit,
    PartitionName,
    PartitionOffset,
    Partitions,
    RecordsQuery,
    Subscription,
    SubscriptionOut,
)
from headrace.web.errors import (
    FORMAT_MISMATCH,
    ILLEGAL_STATE,
    INVALID_CONSUMER_CONFIG,
    HttpError,
)
from headrace.web.instances import Instance, UnacknowledgedPositions, new_name
from headrace.web.operations import PROXY, Operations
from headrace.web.record_formats import RecordOut
from headrace.web.records_response import RecordsResponse

CONSUMERS = Operations("consumers", PROXY)

_BASE = "/consumers/{group}/instances/{instance}"
_MEDIA = {"json": media.KAFKA_JSON, "binary": media.KAFKA_BINARY, "text": media.JSON}
_RESPONSE_TYPES = (media.KAFKA_BINARY, media.KAFKA_JSON, media.KAFKA, media.JSON)


@CONSUMERS.post(
    "/consumers/{group}",
    "Create a consumer instance in a group.",
    body=NewInstance,
    body_required=False,
    response=InstanceMade,
    errors=(409, 422, 429),
)
async def create_instance(call: HttpCall) -> InstanceMade:
    wanted: NewInstance = call.body or NewInstance()
    group = call.path["group"]
    name = wanted.id or wanted.name or new_name(call.state.randomness)
    if name in (".", ".."):
        raise HttpError(422, f"an instance cannot be named {name!r}: no address would lead to it")
    instances = call.state.instances
    instances.check_limit(group, name)
    reset = _choice("auto.offset.reset", wanted.auto_offset_reset or "latest", _RESETS)
    records_media = _MEDIA[_choice("format", (wanted.format or "binary").lower(), tuple(_MEDIA))]
    min_bytes = _number("fetch.min.bytes", wanted.fetch_min_bytes, wanted.response_min_bytes)
    timeout_ms = _number(
        "consumer.request.timeout.ms", wanted.consumer_request_timeout_ms, wanted.request_wait_ms
    )
    unacknowledged = UnacknowledgedPositions()
    settings = MemberSettings(offset_reset=reset)
    member = await call.gateway.join(group, settings=settings, on_revoked=unacknowledged.forget)
    auto_commit = wanted.auto_commit_enable in (None, True, "true")
    instance = Instance(group, name, records_media, member, unacknowledged, auto_commit=auto_commit)
    if min_bytes is not None:
        instance.min_bytes = min_bytes
    if timeout_ms is not None:
        instance.request_timeout_ms = min(timeout_ms, WAIT_MS_MAX)
    instances.add(instance)
    host = (call.header(b"host") or b"").decode("latin-1")
    path = f"/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
    return InstanceMade(name, f"{call.scope['scheme']}://{host}{path}")


@CONSUMERS.delete(_BASE, "Close a consumer instance.", status=204, errors=(404,))
async def delete_instance(call: HttpCall) -> None:
    await call.state.instances.remove(call.path["group"], call.path["instance"])


@CONSUMERS.post(
    f"{_BASE}/subscription",
    "Subscribe to topics; their partitions are shared with the group.",
    body=Subscription,
    status=204,
    errors=(404, 409, 422),
)
async def subscribe(call: HttpCall) -> None:
    wanted: Subscription = call.body
    if bool(wanted.topics) == (wanted.topic_pattern is not None):
        raise HttpError(ILLEGAL_STATE, "give topics or a topic_pattern, one of them")
    instance = _instance(call)
    async with instance.exclusive():
        await instance.subscribe(wanted.topics or (), wanted.topic_pattern)


@CONSUMERS.get(
    f"{_BASE}/subscription",
    "What an instance is subscribed to.",
    response=SubscriptionOut,
    errors=(404,),
)
async def get_subscription(call: HttpCall) -> SubscriptionOut:
    instance = _instance(call)
    if instance.pattern is None:
        return SubscriptionOut(list(instance.topics))
    found = await call.gateway.admin.list_topics(internal=True)
    names = (topic.name for topic in found)
    return SubscriptionOut(sorted(matching(instance.pattern, names, lambda _: True)))


@CONSUMERS.delete(f"{_BASE}/subscription", "Unsubscribe.", status=204, errors=(404,))
async def unsubscribe(call: HttpCall) -> None:
    instance = _instance(call)
    async with instance.exclusive():
        await instance.unsubscribe()


@CONSUMERS.post(
    f"{_BASE}/assignments",
    "Assign partitions by hand, instead of a subscription.",
    body=Partitions,
    status=204,
    errors=(404, 409, 422),
)
async def assign(call: HttpCall) -> None:
    instance = _instance(call)
    partitions = [each.where() for each in call.body.partitions]
    async with instance.exclusive():
        await instance.assign(partitions)


@CONSUMERS.get(
    f"{_BASE}/assignments",
    "The partitions that an instance reads now.",
    response=Partitions,
    errors=(404,),
)
async def get_assignments(call: HttpCall) -> Partitions:
    return Partitions([PartitionName(*where) for where in _instance(call).member.assignment])


@CONSUMERS.post(
    f"{_BASE}/positions",
    "Go on from other offsets.",
    body=Offsets,
    status=204,
    errors=(404, 409, 422),
)
async def seek(call: HttpCall) -> None:
    await _seek(call, {each.where(): each.offset for each in call.body.offsets})


@CONSUMERS.post(
    f"{_BASE}/positions/beginning",
    "Go to the first records.",
    body=Partitions,
    status=204,
    errors=(404, 409, 422),
)
async def seek_to_beginning(call: HttpCall) -> None:
    await _seek(call, {each.where(): EARLIEST for each in call.body.partitions})


@CONSUMERS.post(
    f"{_BASE}/positions/end",
    "Go behind the last records.",
    body=Partitions,
    status=204,
    errors=(404, 409, 422),
)
async def seek_to_end(call: HttpCall) -> None:
    await _seek(call, {each.where(): LATEST for each in call.body.partitions})


@CONSUMERS.get(
    f"{_BASE}/positions",
    "The offsets of the next records.",
    response=Offsets,
    errors=(404, 409),
)
async def get_positions(call: HttpCall) -> Offsets:
    instance = _instance(call)
    instance.check_reading()
    async with instance.exclusive():
        member = instance.member
        found = [(where, await member.position(where)) for where in member.assignment]
    return Offsets([PartitionOffset(*where, offset) for where, offset in found])


@CONSUMERS.get(
    f"{_BASE}/records",
    "The next records of an instance, collected for consumer.request.timeout.ms (or timeout, if "
    "that is shorter), or until there are fetch.min.bytes or max_bytes of them. Reading again says "
    "that what was read before is processed, which auto.commit.enable then commits.",
    query=RecordsQuery,
    response=list[RecordOut],
    produces=_RESPONSE_TYPES,
    errors=(404, 409, 416, 429),
    is_raw=True,
    chooses_media=True,
)
async def read_records(call: HttpCall) -> None:
    instance = _instance(call)
    call.media = _records_media(call, instance)
    instance.check_reading()
    query: RecordsQuery = call.query
    async with instance.responding(call):
        await instance.commit_delivered()
        try:
            response = RecordsResponse(call, instance, query.bytes_at_most())
            await while_connected(call, response.run(query.wait_ms(instance.request_timeout_ms)))
        except BaseException:
            # Nobody has seen these, or not all: the next request gets them again.
            instance.rewind_unacknowledged()
            raise
    _instance(call)  # the time it was used counts from now


@CONSUMERS.post(
    f"{_BASE}/offsets",
    "Commit that records are processed: the given ones and all before them, or all that were read.",
    body=OffsetsToCommit,
    body_required=False,
    status=204,
    errors=(404, 409, 422),
)
async def commit_offsets(call: HttpCall) -> None:
    instance = _instance(call)
    wanted: OffsetsToCommit | None = call.body
    async with instance.exclusive():
        if wanted is None or not wanted.offsets:
            instance.check_reading()
            await instance.member.commit()
            return
        # As REST Proxy has it, the offset is that of the last record processed.
        await instance.member.commit(
            {
                each.where(): CommittedOffset(each.offset + 1, metadata=each.metadata or "")
                for each in wanted.offsets
            }
        )


@CONSUMERS.get(
    f"{_BASE}/offsets",
    "The offsets that the group has committed, for the given partitions or those of the instance.",
    body=Partitions,
    body_required=False,
    response=Offsets,
    errors=(404, 409, 422),
)
async def get_committed(call: HttpCall) -> Offsets:
    instance = _instance(call)
    wanted: Partitions | None = call.body
    partitions = None if wanted is None else [each.where() for each in wanted.partitions]
    async with instance.exclusive():
        found = await instance.member.committed(partitions)
    return Offsets(
        [
            PartitionOffset(*where, committed.offset, committed.metadata)
            for where, committed in sorted(found.items())
        ]
    )


_RESETS = ("earliest", "latest", "none")


def _choice(name: str, value: str, known: tuple[str, ...]) -> str:
    if value in ("avro", "protobuf", "jsonschema"):
        raise HttpError(
            INVALID_CONSUMER_CONFIG,
            f"{name} {value} needs a schema registry, which this broker has not",
            hint="use json or binary",
        )
    if value not in known:
        raise HttpError(
            INVALID_CONSUMER_CONFIG, f"{name} {value[:40]!r} is not one of: {', '.join(known)}"
        )
    return value


def _number(name: str, *values: int | str | None) -> int | None:
    """The first that is given; -1 stands for none."""
    text = next((str(value) for value in values if value is not None), "-1")
    if text == "-1":
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        raise HttpError(INVALID_CONSUMER_CONFIG, f"{name} {text[:40]!r} is not a number")
    return int(text)


def _records_media(call: HttpCall, instance: Instance) -> str:
    """The format is the instance's; the client may call it by a name that leaves it open."""
    accept = call.header(b"accept")
    try:
        return media.response_type(accept, (instance.media, media.KAFKA, media.JSON))
    except HttpError as error:
        if accept is None or not media.names_a_format(accept):
            raise
        raise HttpError(
            FORMAT_MISMATCH,
            f"the format of this instance is {instance.media}",
            hint="create an instance with the format that you want to read",
        ) from error


def _instance(call: HttpCall) -> Instance:
    return call.state.instances.get(call.path["group"], call.path["instance"])


async def _seek(call: HttpCall, positions: Mapping[TopicPartition, int | OffsetSpec]) -> None:
    instance = _instance(call)
    instance.check_reading()
    async with instance.exclusive():
        ours = instance.member.assignment
        for where in positions:
            if where not in ours:
                raise HttpError(
                    ILLEGAL_STATE,
                    f"{where} is not assigned to this instance now",
                    hint="GET \u2026/assignments lists what is; read once to join the group",
                )
        for where, place in positions.items():
            # Found out now: what is produced after the answer comes after the end.
            offset = place
            if isinstance(place, OffsetSpec):
                offset = await call.gateway.offset_of(where, place)
            instance.member.seek(where, offset)
