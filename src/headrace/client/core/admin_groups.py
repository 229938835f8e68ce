"""Admin operations about groups: listing, describing, deleting, and moving their offsets."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from headrace.client.core.coordinators import per_group, send_to_coordinator
from headrace.client.core.errors import GroupInUse, error_for, raise_for
from headrace.client.core.group_descriptions import describe_classic, describe_consumer
from headrace.client.core.group_models import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
)
from headrace.client.core.lookups import MissingTopic, refresh_metadata
from headrace.client.core.member_metadata import by_topic
from headrace.client.core.offset_operations import commit_offsets
from headrace.client.core.operations import ClientOperation, SendAll, Session, retrying
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.network.errors import UnsupportedApi
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

_OTHER_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
# Removing members by name rather than one by one came with v3.
_LEAVE_VERSION_MIN = 3


def list_groups(
    session: Session, states: Collection[str], types: Collection[str]
) -> ClientOperation[list[GroupListing]]:
    """The groups of every broker, by name."""

    def attempt() -> ClientOperation[list[GroupListing]]:
        yield from refresh_metadata(session, [])
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        limit = session.settings.request_timeout_ms
        version_min = 5 if types else 4 if states else 0
        responses: list[Message | HeadraceError] = yield SendAll(
            [
                SendRequest(node, request, ListGroupsResponse, limit, version_min=version_min)
                for node in session.cluster.brokers
            ]
        )
        found: dict[str, GroupListing] = {}
        for response in responses:
            if isinstance(response, HeadraceError):
                raise response
            assert isinstance(response, ListGroupsResponse)
            raise_for(response.error_code, None, "groups")
            for group in response.groups:
                found[group.group_id] = GroupListing(
                    group.group_id,
                    group.group_state,
                    group.group_type.lower(),
                    group.protocol_type,
                )
        return [found[name] for name in sorted(found)]

    return (yield from retrying(session, attempt))


def describe_groups(
    session: Session, groups: Collection[str]
) -> ClientOperation[dict[str, GroupDescription]]:
    """State and members of groups of either protocol; one that does not exist is an error."""
    found = yield from find_groups(session, groups)
    for group in groups:
        if group not in found:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} does not exist")
    return {group: found[group] for group in groups}


def find_groups(
    session: Session, groups: Collection[str]
) -> ClientOperation[dict[str, GroupDescription]]:
    """State and members of those of the groups that exist."""
    # The new protocol first: asked for a group of the other kind, a broker says it knows none.
    found: dict[str, GroupDescription | None] = dict.fromkeys(groups)
    with suppress(UnsupportedApi):  # an older broker has only classic groups
        found.update((yield from _describe_consumer_groups(session, groups)))
    rest = [group for group, described in found.items() if described is None]
    if rest:
        found.update((yield from _describe_classic_groups(session, rest)))
    return {group: described for group, described in found.items() if described is not None}


def _describe_consumer_groups(
    session: Session, groups: Collection[str]
) -> ClientOperation[dict[str, GroupDescription | None]]:
    def make_request(node: NodeId, asked: Sequence[str]) -> SendRequest:
        request = ConsumerGroupDescribeRequest(
            group_ids=list(asked), include_authorized_operations=False
        )
        limit = session.settings.request_timeout_ms
        return SendRequest(node, request, ConsumerGroupDescribeResponse, limit)

    def read(response: Message) -> dict[str, GroupDescription | HeadraceError | None]:
        assert isinstance(response, ConsumerGroupDescribeResponse)
        found: dict[str, GroupDescription | HeadraceError | None] = {}
        for group in response.groups:
            if group.error_code in _OTHER_KIND:
                found[group.group_id] = None
            elif group.error_code:
                what = f"group {group.group_id!r}"
                found[group.group_id] = error_for(group.error_code, group.error_message, what)
            else:
                node = session.coordinators[group.group_id]
                found[group.group_id] = describe_consumer(group, node)
        return found

    return (yield from per_group(session, groups, make_request, read))


def _describe_classic_groups(
    session: Session, groups: Collection[str]
) -> ClientOperation[dict[str, GroupDescription | None]]:
    def make_request(node: NodeId, asked: Sequence[str]) -> SendRequest:
        request = DescribeGroupsRequest(groups=list(asked))
        return SendRequest(
            node, request, DescribeGroupsResponse, session.settings.request_timeout_ms
        )

    def read(response: Message) -> dict[str, GroupDescription | HeadraceError | None]:
        assert isinstance(response, DescribeGroupsResponse)
        found: dict[str, GroupDescription | HeadraceError | None] = {}
        for group in response.groups:
            # Before v6 a group that does not exist is described as a dead one.
            is_missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            if is_missing or (not group.error_code and group.group_state == "Dead"):
                found[group.group_id] = None
            elif group.error_code:
                what = f"group {group.group_id!r}"
                found[group.group_id] = error_for(group.error_code, group.error_message, what)
            else:
                node = session.coordinators[group.group_id]
                found[group.group_id] = describe_classic(group, node)
        return found

    return (yield from per_group(session, groups, make_request, read))


def delete_groups(session: Session, groups: Collection[str]) -> ClientOperation[None]:
    """Delete groups without members, offsets included; raises the first refusal, if any."""

    def make_request(node: NodeId, asked: Sequence[str]) -> SendRequest:
        request = DeleteGroupsRequest(groups_names=list(asked))
        return SendRequest(node, request, DeleteGroupsResponse, session.settings.request_timeout_ms)

    def read(response: Message) -> dict[str, HeadraceError | None]:
        assert isinstance(response, DeleteGroupsResponse)
        return {
            result.group_id: _deletion_error(result.group_id, result.error_code)
            for result in response.results
        }

    yield from per_group(session, groups, make_request, read)


def _deletion_error(group: str, code: int) -> HeadraceError | None:
    if code == ErrorCode.NON_EMPTY_GROUP:
        return GroupInUse(ErrorCode.NON_EMPTY_GROUP, f"group {group!r} has members")
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} does not exist")
    return error_for(code, None, f"deletion of group {group!r}") if code else None


def alter_offsets(
    session: Session, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> ClientOperation[None]:
    """Set the offsets of a group that nobody reads for; a group without members may be new."""
    left = dict(offsets)

    def attempt() -> ClientOperation[None]:
        trying = dict(left)
        failures = yield from commit_offsets(session, group, trying)
        for partition in trying:
            if partition not in failures:
                del left[partition]
        if failures:
            errors = [_altering_error(group, error) for error in failures.values()]
            raise min(errors, key=lambda each: each.retriable)

    if left:
        yield from retrying(session, attempt)


def _altering_error(group: str, error: HeadraceError) -> HeadraceError:
    if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        return GroupInUse(error.code, f"group {group!r} has members; its offsets were not moved")
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return MissingTopic(error.code, error.message)
    return error


def delete_offsets(
    session: Session, group: str, partitions: Collection[TopicPartition]
) -> ClientOperation[None]:
    """Forget the group's offsets for these partitions, which no member may be subscribed to."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )

    def attempt() -> ClientOperation[None]:
        response = yield from send_to_coordinator(session, group, request, OffsetDeleteResponse)
        raise_for(response.error_code, None, f"offsets of group {group!r}")
        for topic in response.topics:
            for part in topic.partitions:
                what = f"offset of {TopicPartition(topic.name, part.partition_index)}"
                if part.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                    said = f"{what}: members of group {group!r} are subscribed to the topic"
                    raise GroupInUse(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, said)
                if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue  # nothing is committed there
                raise_for(part.error_code, None, f"{what} in group {group!r}")

    yield from retrying(session, attempt)


def remove_members(
    session: Session, group: str, *, instance_ids: Collection[str], member_ids: Collection[str]
) -> ClientOperation[None]:
    """Put members out of the group; live ones will join again."""
    members = [MemberIdentity(member_id="", group_instance_id=name) for name in instance_ids]
    members += [MemberIdentity(member_id=member_id) for member_id in member_ids]
    request = LeaveGroupRequest(group_id=group, members=members)

    def attempt() -> ClientOperation[None]:
        response = yield from send_to_coordinator(
            session, group, request, LeaveGroupResponse, version_min=_LEAVE_VERSION_MIN
        )
        raise_for(response.error_code, None, f"members of group {group!r}")
        for member in response.members:
            name = member.group_instance_id or member.member_id
            raise_for(member.error_code, None, f"member {name!r} of group {group!r}")

    if members:
        yield from retrying(session, attempt)
