"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.differential.peer import Peer
from tests.differential.script_groups import enter, join_request, ready
from tests.differential.scripts import NULL_ID, script, versions

_IDS_SINCE, _BATCHES_SINCE = 10, 8
_MADE_UP = UUID(int=77)
Asked = Iterable[tuple[str, UUID, Iterable[int]]]


def commit(
    group: str,
    topics: Iterable[tuple[str, UUID, Iterable[tuple[int, int]]]],
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    retention_ms: int = -1,
    epoch: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset in offsets
                ],
            )
            for name, topic_id, offsets in topics
        ],
    )


def fetch(
    version: int,
    groups: Iterable[str],
    asked: Asked | None,
    *,
    member: tuple[str | None, int] = (None, -1),
    stable: bool = False,
) -> OffsetFetchRequest:
    """Of one group or of several, as the version wants it."""
    listed = None if asked is None else list(asked)
    if version < _BATCHES_SINCE:
        (group,) = groups
        topics = (
            None
            if listed is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
                for name, _, indexes in listed
            ]
        )
        return OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
    return OffsetFetchRequest(
        require_stable=stable,
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                member_id=member[0],
                member_epoch=member[1],
                topics=None
                if listed is None
                else [
                    OffsetFetchRequestTopics(
                        name=name, topic_id=topic_id, partition_indexes=list(indexes)
                    )
                    for name, topic_id, indexes in listed
                ],
            )
            for group in groups
        ],
    )


@script
def offsets_committed_in_every_version(peer: Peer) -> None:
    read = ("committed", peer.create("committed", 3))
    other = ("committed too", UUID(int=0))
    other = ("committed-too", peer.create("committed-too", 1))
    member_id, generation = enter(peer, "committing")
    static_id, static_generation = enter(peer, "committing static", "instance")
    ready(peer, "simple", "", "nowhere", "fetched")
    for version in versions(ApiKey.OFFSET_COMMIT):
        mine = {"member_id": member_id, "generation": generation}
        missing = (*_ids(version, "no-such-topic", _MADE_UP), ((0, 1),))
        for label, request in (
            ("without a group", commit("simple", [(*read, ((0, 5), (1, 6)))])),
            ("without a group again", commit("simple", [(*read, ((0, 4),)), (*other, ((0, 1),))])),
            ("with metadata", commit("simple", [(*read, ((2, 9),))], metadata="text", epoch=0)),
            ("null metadata", commit("simple", [(*read, ((2, 9),))], metadata=None)),
            ("long metadata", commit("simple", [(*read, ((2, 10),))], metadata="x" * 5_000)),
            ("negative offset", commit("simple", [(*read, ((1, -1),))])),
            ("no topics", commit("simple", [])),
            ("no partitions", commit("simple", [(*read, ())])),
            ("no group id", commit("", [(*read, ((0, 5),))])),
            ("unknown partition", commit("simple", [(*read, ((0, 5), (7, 1), (-1, 1)))])),
            ("unknown topic", commit("simple", [missing, (*read, ((0, 5),))])),
            ("own generation", commit("committing", [(*read, ((0, 5),))], **mine)),  # type: ignore[arg-type]  # by name
            (
                "old generation",
                commit(
                    "committing",
                    [(*read, ((0, 5),))],
                    member_id=member_id,
                    generation=generation - 1,
                ),
            ),
            ("no generation", commit("committing", [(*read, ((0, 5),))], member_id=member_id)),
            ("nobody", commit("committing", [(*read, ((0, 5),))])),
            ("somebody", commit("committing", [(*read, ((0, 5),))], member_id="x", generation=1)),
            ("unknown group", commit("nowhere", [(*read, ((0, 5),))], member_id="x", generation=1)),
        ):
            peer.ask(request, version, label)
        if version <= 4:
            request = commit("simple", [(*read, ((0, 5),))], retention_ms=1_000_000_000)
            peer.ask(request, version, "with a retention time")
        if version >= 7:
            for label, instance, member, number in (
                ("static", "instance", static_id, static_generation),
                ("static, other id", "instance", "x", static_generation),
                ("unknown instance", "x", static_id, static_generation),
            ):
                request = commit(
                    "committing static",
                    [(*read, ((0, 5),))],
                    member_id=member,
                    generation=number,
                    instance_id=instance,
                )
                peer.ask(request, version, label)
        _fetch_all(peer, f"after v{version}", read, other)


def _ids(version: int, name: str, topic_id: UUID) -> tuple[str, UUID]:
    return ("", topic_id) if version >= _IDS_SINCE else (name, NULL_ID)


def _fetch_all(peer: Peer, label: str, read: tuple[str, UUID], other: tuple[str, UUID]) -> None:
    asked = [(*read, (0, 1, 2)), (*other, (0,))]
    peer.ask(fetch(9, ["simple", "committing", "committing static"], asked), 9, label)


@script
def offsets_fetched_in_every_version(peer: Peer) -> None:
    read = ("fetched", peer.create("fetched", 3))
    gone = ("fetched-gone", peer.create("fetched-gone", 1))
    ready(peer, "fetching", "nowhere", "")
    request = commit("fetching", [(*read, ((0, 5), (1, 0))), (*gone, ((0, 8),))], epoch=0)
    peer.ask(request, 9, "commit")
    member_id, generation = enter(peer, "fetching member")
    for version in versions(ApiKey.OFFSET_FETCH):
        missing = (*_ids(version, "no-such-topic", _MADE_UP), (0,))
        for label, group, asked in (
            ("some", "fetching", [(*read, (0, 1, 2))]),
            ("a partition that is not there", "fetching", [(*read, (0, 9))]),
            ("a topic that is not there", "fetching", [missing, (*read, (0,))]),
            ("nothing", "fetching", []),
            ("unknown group", "nowhere", [(*read, (0, 1))]),
            ("no group id", "", [(*read, (0,))]),
        ):
            peer.ask(fetch(version, [group], asked), version, label)
        if version >= 2:
            for group in ("fetching", "nowhere", "fetching member"):
                peer.ask(fetch(version, [group], None), version, f"all of {group}")
        if version >= 7:
            stable = fetch(version, ["fetching"], [(*read, (0, 1))], stable=True)
            peer.ask(stable, version, "stable ones")
        if version >= _BATCHES_SINCE:
            several = fetch(version, ["fetching", "nowhere", "fetching member"], [(*read, (0,))])
            peer.ask(several, version, "several groups")
            peer.ask(fetch(version, [], None), version, "no groups")
        if version >= 9:
            for label, member in (
                ("own generation", (member_id, generation)),
                ("old generation", (member_id, generation - 1)),
                ("somebody", ("x", 1)),
            ):
                request9 = fetch(version, ["fetching member"], [(*read, (0,))], member=member)
                peer.ask(request9, version, label)
    peer.delete("fetched-gone")
    for version in (7, 9, 10):
        for turn in range(3):
            request7 = fetch(version, ["fetching"], [(*read, (0,))])
            peer.ask(request7, version, f"after a topic went {turn}")


@script
def commits_in_the_middle_of_a_rebalance(peer: Peer) -> None:
    read = ("rebalanced", peer.create("rebalanced", 1))
    ready(peer, "rebalancing")
    found = peer.quietly(join_request("rebalancing"), 3, JoinGroupResponse)
    for version in versions(ApiKey.OFFSET_COMMIT):
        for label, generation in (("this", found.generation_id), ("the last", 0), ("none", -1)):
            request = commit(
                "rebalancing",
                [(*read, ((0, 5),))],
                member_id=found.member_id,
                generation=generation,
            )
            peer.ask(request, version, f"{label} generation before the sync")
    peer.ask(
        HeartbeatRequest(
            group_id="rebalancing", generation_id=found.generation_id, member_id=found.member_id
        ),
        4,
        "heartbeat before the sync",
    )


@script
def offsets_deleted(peer: Peer) -> None:
    read = ("read", peer.create("read", 2))
    unread = ("unread", peer.create("unread", 2))
    ready(peer, "deleting simple", "nowhere")
    member_id, generation = enter(peer, "deleting")
    for group in ("deleting", "deleting simple"):
        mine = (member_id, generation) if group == "deleting" else ("", -1)
        request = commit(
            group,
            [(*read, ((0, 1), (1, 2))), (*unread, ((0, 3), (1, 4)))],
            member_id=mine[0],
            generation=mine[1],
        )
        peer.ask(request, 9, f"commit for {group}")
    for label, doomed_group, topics in (
        ("of a topic that is read", "deleting", (("read", (0,)),)),
        ("of a topic that is not read", "deleting", (("unread", (0,)),)),
        ("of both", "deleting", (("unread", (1,)), ("read", (1,)))),
        ("of nobody", "deleting simple", (("read", (0, 1)), ("unread", (0,)))),
        ("once more", "deleting simple", (("read", (0,)),)),
        ("unknown partition", "deleting simple", (("read", (0, 9)), ("no-such-topic", (0,)))),
        ("unknown partition only", "deleting simple", (("no-such-topic", (0,)),)),
        ("nothing", "deleting simple", ()),
        ("unknown group", "nowhere", (("read", (0,)),)),
        ("no group id", "", (("read", (0,)),)),
    ):
        request8 = OffsetDeleteRequest(
            group_id=doomed_group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
                )
                for name, indexes in topics
            ],
        )
        peer.ask(request8, 0, label)
    asked = [(*read, (0, 1)), (*unread, (0, 1))]
    peer.ask(fetch(9, ["deleting", "deleting simple"], asked), 9, "what is left")
