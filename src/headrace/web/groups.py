"""Groups: who is in them, how far behind they are, and setting their offsets."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from headrace.client.core.group_models import CommittedOffset, GroupDescription, PartitionLag
from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec, at_time
from headrace.core.ids import TopicPartition
from headrace.web.call import HttpCall
from headrace.web.consumer_types import Offsets, PartitionName, PartitionOffset
from headrace.web.errors import GROUP_NOT_FOUND, HttpError, no_partition
from headrace.web.operations import Operations
from headrace.web.record_formats import Offset, Timestamp

GROUPS = Operations("groups")


class GroupListed(msgspec.Struct):
    """One group of the list."""

    group: str
    state: str
    type: str


class GroupMember(msgspec.Struct):
    """One member and the partitions that it reads."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: list[PartitionName]


class Lag(msgspec.Struct):
    """How far a group is behind on one partition; null where nothing is committed."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None = None


class Group(msgspec.Struct):
    """One group with its members and their lag."""

    group: str
    state: str
    type: str
    assignor: str
    coordinator: int
    members: list[GroupMember]
    lag: list[Lag]


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go, by exactly one of `to`, `offset`, `timestamp`, `back_ms` and `shift_by`.

    What is moved: the given partitions, all partitions of the given topics, or (with neither)
    everything that the group has committed.
    """

    topics: list[str] | None = None
    partitions: list[PartitionName] | None = None
    to: Literal["earliest", "latest"] | None = None
    offset: Offset | None = None
    timestamp: Timestamp | None = None
    back_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    shift_by: Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)] | None = None
    dry_run: bool = False


class Moved(msgspec.Struct):
    """One partition's committed offset, before and after."""

    topic: str
    partition: int
    before: int | None
    after: int


@GROUPS.get("/groups", "All groups.", response=list[GroupListed])
async def list_groups(call: HttpCall) -> list[GroupListed]:
    found = await call.gateway.admin.list_groups()
    listed = [GroupListed(each.group_id, each.state, each.group_type) for each in found]
    return sorted(listed, key=lambda each: each.group)


@GROUPS.get(
    "/groups/{group}", "One group: its members and their lag.", response=Group, errors=(404,)
)
async def get_group(call: HttpCall) -> Group:
    described = await _describe(call)
    members = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            [PartitionName(*where) for where in each.assignment],
        )
        for each in described.members
    ]
    return Group(
        described.group_id,
        described.state,
        described.group_type,
        described.assignor,
        described.coordinator,
        members,
        await _lag(call),
    )


@GROUPS.delete(
    "/groups/{group}",
    "Delete a group with its offsets; it must have no members.",
    status=204,
    errors=(404, 409),
)
async def delete_group(call: HttpCall) -> None:
    await call.gateway.admin.delete_groups([call.path["group"]])


@GROUPS.get("/groups/{group}/lag", "How far a group is behind.", response=list[Lag], errors=(404,))
async def get_lag(call: HttpCall) -> list[Lag]:
    await _describe(call)
    return await _lag(call)


@GROUPS.get(
    "/groups/{group}/offsets",
    "What a group has committed: the offset of the next record of each partition.",
    response=Offsets,
)
async def get_group_offsets(call: HttpCall) -> Offsets:
    found = await call.gateway.offsets(call.path["group"])
    return Offsets(
        [
            PartitionOffset(*where, committed.offset, committed.metadata)
            for where, committed in sorted(found.items())
        ]
    )


@GROUPS.post(
    "/groups/{group}/offsets",
    "Commit offsets of a group without members: of each partition, the next record to read.",
    body=Offsets,
    status=204,
    errors=(404, 409, 422),
)
async def commit_group_offsets(call: HttpCall) -> None:
    wanted: Offsets = call.body
    await call.gateway.commit(
        call.path["group"],
        {
            each.where(): CommittedOffset(each.offset, metadata=each.metadata or "")
            for each in wanted.offsets
        },
    )


@GROUPS.post(
    "/groups/{group}/reset",
    "Set a group without members to another place; dry_run only tells what would be.",
    body=Reset,
    response=list[Moved],
    errors=(404, 409, 422),
)
async def reset_group(call: HttpCall) -> list[Moved]:
    wanted: Reset = call.body
    ways = (wanted.to, wanted.offset, wanted.timestamp, wanted.back_ms, wanted.shift_by)
    if sum(way is not None for way in ways) != 1:
        hint = "to, offset, timestamp, back_ms or shift_by"
        raise HttpError(422, "say exactly once where to go", hint=hint)
    committed = await call.gateway.offsets(call.path["group"])
    before = {where: found.offset for where, found in committed.items()}
    chosen = await _chosen(call, wanted, before)
    after = {
        where: await _target_offset(call, wanted, where, before.get(where)) for where in chosen
    }
    if not wanted.dry_run:
        await call.gateway.reset(call.path["group"], after)
    return [Moved(*where, before.get(where), after[where]) for where in sorted(after)]


async def _chosen(
    call: HttpCall, wanted: Reset, before: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if wanted.topics is None and wanted.partitions is None:
        if not before:
            raise HttpError(
                GROUP_NOT_FOUND,
                f"{call.path['group']} has committed nothing",
                hint="name the topics or partitions to set",
            )
        return list(before)
    chosen: dict[TopicPartition, None] = {}
    for topic in wanted.topics or ():
        for number in range(await call.gateway.partitions(topic)):
            chosen[TopicPartition(topic, number)] = None
    for each in wanted.partitions or ():
        count = await call.gateway.partitions(each.topic)
        if each.partition >= count:
            raise no_partition(each.topic, each.partition, count)
        chosen[each.where()] = None
    return list(chosen)


async def _target_offset(
    call: HttpCall, wanted: Reset, where: TopicPartition, before: int | None
) -> int:
    spec: OffsetSpec | None = None
    if wanted.to is not None:
        spec = EARLIEST if wanted.to == "earliest" else LATEST
    elif wanted.timestamp is not None:
        spec = at_time(wanted.timestamp)
    elif wanted.back_ms is not None:
        spec = at_time(max(0, call.state.clock.now_ms() - wanted.back_ms))
    if spec is not None:
        return await call.gateway.offset_of(where, spec)
    first = await call.gateway.offset_of(where, EARLIEST)
    end = await call.gateway.offset_of(where, LATEST)
    if wanted.offset is not None:
        return min(max(wanted.offset, first), end)
    if before is None:
        raise HttpError(422, f"{where} has no committed offset to shift")
    return min(max(before + (wanted.shift_by or 0), first), end)


async def _describe(call: HttpCall) -> GroupDescription:
    name = call.path["group"]
    found = (await call.gateway.admin.describe_groups([name])).get(name)
    if found is None or found.state == "Dead":
        raise HttpError(
            GROUP_NOT_FOUND, f"there is no group {name}", hint="GET /groups lists the groups"
        )
    return found


async def _lag(call: HttpCall) -> list[Lag]:
    found = await call.gateway.admin.group_lag(call.path["group"])
    return [_shown(each) for each in sorted(found, key=lambda each: each.partition)]


def _shown(each: PartitionLag) -> Lag:
    member = None if each.member is None else each.member.member_id
    return Lag(*each.partition, each.committed, each.end, each.lag, member)
