"""Classic groups: finding the coordinator, joining, syncing, leaving, and what lists them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.differential.masks import plain
from tests.differential.peer import Peer
from tests.differential.scripts import script, versions
from tests.support.group_wire import subscription

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_NOT_YET = {14, 15, 16}


def ready(peer: Peer, *groups: str) -> None:
    """Wait until the coordinators of these groups serve; not noted."""
    asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    deadline = time.monotonic() + 30
    while True:
        found = peer.quietly(
            FindCoordinatorRequest(coordinator_keys=list(groups)), 4, FindCoordinatorResponse
        )
        codes = {each.error_code for each in found.coordinators}
        if not codes & _NOT_YET:
            fetched = peer.quietly(OffsetFetchRequest(groups=asked), 8, OffsetFetchResponse)
            codes = {each.error_code for each in fetched.groups}
        if not codes & _NOT_YET:
            return
        assert time.monotonic() < deadline, f"no coordinator for {groups}: {codes}"
        time.sleep(0.05)


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocols: Iterable[tuple[str, bytes]] = (("range", subscription("read")),),
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ],
    )


def sync_request(
    group: str,
    generation: int,
    member_id: str,
    share: bytes | None = b"",
    *,
    instance_id: str | None = None,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
) -> SyncGroupRequest:
    shares = (
        [] if share is None else [SyncGroupRequestAssignment(member_id=member_id, assignment=share)]
    )
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol[0],
        protocol_name=protocol[1],
        assignments=shares,
    )


def heartbeat_request(
    group: str, generation: int, member_id: str, instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def enter(peer: Peer, group: str, instance_id: str | None = None) -> tuple[str, int]:
    """Join and sync alone, without noting: member id and generation of a stable group."""
    ready(peer, group)
    member_id = ""
    while True:
        request = join_request(group, member_id, instance_id=instance_id)
        found = peer.quietly(request, 9, JoinGroupResponse)
        member_id = found.member_id
        if found.error_code == 0:
            break
        assert found.error_code == 79, found
    sync = sync_request(group, found.generation_id, member_id, b"", instance_id=instance_id)
    assert peer.quietly(sync, 5, SyncGroupResponse).error_code == 0
    plain(found, 9, peer.names)  # so that its id has a name before it is seen among others
    return member_id, found.generation_id


@script
def coordinators_in_every_version(peer: Peer) -> None:
    ready(peer, "found", "", "also found")
    for version in versions(ApiKey.FIND_COORDINATOR):
        if version < 4:
            for key in ("found", "also found", "a third", ""):
                peer.ask(FindCoordinatorRequest(key=key), version, f"group {key!r}")
        else:
            for keys in (["found"], ["found", "also found", "found"], []):
                request = FindCoordinatorRequest(coordinator_keys=keys)
                peer.ask(request, version, f"groups {keys}")
        if version:
            for kind in (_TRANSACTION, _SHARE, 99):
                request = FindCoordinatorRequest(key="k", coordinator_keys=["k"], key_type=kind)
                peer.ask(request, version, f"key type {kind}")


@script
def a_member_alone_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.JOIN_GROUP):
        group = f"alone {version}"
        ready(peer, group)
        found = peer.ask(join_request(group), version, "first join")
        assert isinstance(found, JoinGroupResponse)
        if found.error_code:
            found = peer.ask(join_request(group, found.member_id), version, "join with the id")
            assert isinstance(found, JoinGroupResponse)
        member_id = found.member_id
        peer.ask(join_request(group, member_id), version, "join again unsynced")
        sync = min(version, 5)
        generation = found.generation_id
        peer.ask(sync_request(group, generation, member_id, b"share"), sync, "sync")
        peer.ask(sync_request(group, generation, member_id, None), sync, "sync again")
        found = peer.ask(join_request(group, member_id), version, "join again")
        assert isinstance(found, JoinGroupResponse)
        generation = found.generation_id
        peer.ask(sync_request(group, generation, member_id, b"other"), sync, "sync once more")
        for heartbeat in versions(ApiKey.HEARTBEAT):
            peer.ask(heartbeat_request(group, generation, member_id), heartbeat, "heartbeat")


@script
def joins_that_are_refused(peer: Peer) -> None:
    enter(peer, "refusing")
    for version in versions(ApiKey.JOIN_GROUP):
        for label, request in (
            ("no group id", join_request("")),
            ("short session", join_request("refusing", session_timeout_ms=10)),
            ("long session", join_request("refusing", session_timeout_ms=100_000_000)),
            ("no protocols", join_request("refusing", protocols=())),
            ("no protocols, new group", join_request("refusing new", protocols=())),
            ("no protocol type", join_request("refusing new 2", protocol_type="")),
            ("other protocol type", join_request("refusing", protocol_type="connect")),
            ("other protocol", join_request("refusing", protocols=(("x", b""),))),
            ("unknown member", join_request("refusing", "somebody")),
            ("unknown member and group", join_request("nowhere", "somebody")),
            ("unknown instance", join_request("refusing", "somebody", instance_id="i")),
        ):
            if version >= 5 or request.group_instance_id is None:
                peer.ask(request, version, label)


@script
def syncs_and_heartbeats_that_are_refused(peer: Peer) -> None:
    member_id, generation = enter(peer, "strict")
    static_id, static_generation = enter(peer, "strict static", "instance")
    for version in versions(ApiKey.SYNC_GROUP):
        for label, request in (
            ("no group id", sync_request("", generation, member_id)),
            ("unknown group", sync_request("nowhere", 1, member_id)),
            ("unknown member", sync_request("strict", generation, "somebody")),
            ("old generation", sync_request("strict", generation - 1, member_id)),
            ("next generation", sync_request("strict", generation + 1, member_id)),
            ("right", sync_request("strict", generation, member_id)),
            ("right, without shares", sync_request("strict", generation, member_id, None)),
            ("static", sync_request("strict static", static_generation, static_id)),
        ):
            peer.ask(request, version, label)
    for protocol in (
        (None, None),
        ("consumer", None),
        (None, "range"),
        ("x", "range"),
        ("consumer", "x"),
    ):
        request = sync_request("strict", generation, member_id, protocol=protocol)
        peer.ask(request, 5, f"protocol {protocol}")
    for version in versions(ApiKey.HEARTBEAT):
        for label, beat in (
            ("no group id", heartbeat_request("", generation, member_id)),
            ("unknown group", heartbeat_request("nowhere", 1, member_id)),
            ("unknown member", heartbeat_request("strict", generation, "somebody")),
            ("old generation", heartbeat_request("strict", generation - 1, member_id)),
            ("right", heartbeat_request("strict", generation, member_id)),
        ):
            peer.ask(beat, version, label)
    for version in versions(ApiKey.HEARTBEAT, since=3):
        for label, beat in (
            (
                "static",
                heartbeat_request("strict static", static_generation, static_id, "instance"),
            ),
            ("other instance", heartbeat_request("strict static", 1, static_id, "other")),
            ("other id of it", heartbeat_request("strict static", 1, "other", "instance")),
        ):
            peer.ask(beat, version, label)


@script
def leaving_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.LEAVE_GROUP):
        group = f"left {version}"
        for turn in range(3):
            member_id, _ = enter(peer, group)
            if version < 3:
                peer.ask(LeaveGroupRequest(group_id=group, member_id=member_id), version, "leave")
                peer.ask(LeaveGroupRequest(group_id=group, member_id=member_id), version, "again")
                continue
            members = [MemberIdentity(member_id=member_id)]
            if turn:
                members.append(MemberIdentity(member_id="somebody"))
                members.append(MemberIdentity(member_id="", group_instance_id="nobody"))
            request = LeaveGroupRequest(group_id=group, members=members)
            peer.ask(request, version, f"leave with {len(members) - 1} others")
            peer.ask(request, version, "leave again")
        if version >= 3:
            for name in ("a", "b", "c"):
                static_id, _ = enter(peer, f"static {version} {name}", "instance")
                for label, each in (
                    ("wrong id", MemberIdentity(member_id="x", group_instance_id="instance")),
                    ("by instance", MemberIdentity(member_id="", group_instance_id="instance")),
                    ("gone", MemberIdentity(member_id=static_id, group_instance_id="instance")),
                ):
                    request = LeaveGroupRequest(group_id=f"static {version} {name}", members=[each])
                    peer.ask(request, version, label)
        peer.ask(LeaveGroupRequest(group_id="", member_id="m"), version, "no group id")
        peer.ask(
            LeaveGroupRequest(group_id="nowhere", members=[MemberIdentity(member_id="m")]),
            version,
            "unknown group",
        )


@script
def a_static_member_that_comes_back(peer: Peer) -> None:
    for version in versions(ApiKey.JOIN_GROUP, since=5):
        group = f"static {version}"
        old_id, generation = enter(peer, group, "instance")
        found = peer.ask(join_request(group, instance_id="instance"), version, "back")
        assert isinstance(found, JoinGroupResponse)
        peer.ask(heartbeat_request(group, generation, old_id, "instance"), 4, "the old id")
        peer.ask(heartbeat_request(group, generation, found.member_id, "instance"), 4, "the new id")
        sync = sync_request(group, generation, found.member_id, None, instance_id="instance")
        peer.ask(sync, 5, "sync of the new id")
        peer.ask(join_request(group, old_id, instance_id="instance"), version, "join of the old id")
        other = (("roundrobin", subscription("read")),)
        request = join_request(group, instance_id="instance", protocols=other)
        peer.ask(request, version, "back with another protocol")


@script
def groups_listed_described_and_deleted(peer: Peer) -> None:
    member_id, generation = enter(peer, "shown")
    enter(peer, "shown static", "instance")
    left, _ = enter(peer, "shown empty")
    peer.ask(LeaveGroupRequest(group_id="shown empty", member_id=left), 2, "leave")
    ready(peer, "shown rebalancing")
    peer.ask(join_request("shown rebalancing"), 3, "join")
    names = ["shown", "shown static", "shown empty", "shown rebalancing"]
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        peer.ask(DescribeGroupsRequest(groups=names), version, "all")
        peer.ask(DescribeGroupsRequest(groups=[]), version, "none")
        peer.ask(DescribeGroupsRequest(groups=["shown"]), version, "one")
        peer.ask(DescribeGroupsRequest(groups=["nowhere", ""]), version, "unknown")
        if version >= 3:
            request = DescribeGroupsRequest(groups=["shown"], include_authorized_operations=True)
            peer.ask(request, version, "with operations")
    for version in versions(ApiKey.LIST_GROUPS):
        for label, states, types in (
            ("all", (), ()),
            ("stable", ("Stable",), ()),
            ("any case", ("sTaBLE", "empty"), ()),
            ("unknown state", ("Asleep",), ()),
            ("classic", (), ("classic",)),
            ("consumer", (), ("Consumer",)),
            ("unknown type", (), ("queue",)),
            ("empty classic", ("Empty",), ("Classic",)),
        ):
            if (version >= 4 or not states) and (version >= 5 or not types):
                listing = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
                peer.ask(listing, version, label)
        for turn in range(2):
            peer.ask(ListGroupsRequest(), version, f"all once more {turn}")
    for version in versions(ApiKey.DELETE_GROUPS):
        for turn in range(3):
            group = f"deleted {version} {turn}"
            gone, _ = enter(peer, group)
            peer.ask(LeaveGroupRequest(group_id=group, member_id=gone), 2, "leave before deletion")
            peer.ask(DeleteGroupsRequest(groups_names=[group]), version, "an empty group")
        for label, doomed in (
            ("a group with members", ["shown"]),
            ("unknown and empty", ["nowhere", ""]),
            ("a group deleted before", [f"deleted {version} 0"]),
            ("nothing", []),
        ):
            peer.ask(DeleteGroupsRequest(groups_names=doomed), version, label)
    peer.ask(heartbeat_request("shown", generation, member_id), 4, "still there")
