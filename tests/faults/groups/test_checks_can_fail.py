"""Bad histories of a group, told by members or by the log, and what each of them breaks."""

from __future__ import annotations

import struct
from uuid import UUID

from headrace.groups.records import GroupRecord
from headrace.protocol.schemas.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentTopicPartitions,
)
from headrace.protocol.schemas.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.support.group_checks import check_group
from tests.support.group_history import (
    Bounds,
    Commit,
    Final,
    GroupHistory,
    Observed,
    Partition,
    Tenure,
)
from tests.support.group_log import GroupLog

PLACE: Partition = ("work", 0)


def _good() -> GroupHistory:
    """Two members, one after the other, and somebody who watches."""
    history = GroupHistory()
    history.tenures = [
        Tenure("a", PLACE, began=10, ended=30, how="revoked", offsets=(0, 1, 2)),
        Tenure("b", PLACE, began=40, ended=90, how="ended", offsets=(3, 4)),
    ]
    history.commits = [
        Commit("a", PLACE, began=20, ended=25, offset=3, ok=True),
        Commit("b", PLACE, began=60, ended=70, offset=5, ok=True),
    ]
    history.observed = [Observed(PLACE, 26, 28, 3), Observed(PLACE, 61, 65, 3)]
    history.bounds = [Bounds(PLACE, 0, 3, 5, asked_timestamp=102, found=2)]
    history.final = Final({PLACE: (100, 101, 102, 103, 104)}, {PLACE: "b"}, 1.0, 5.0)
    return history


def _broken(history: GroupHistory) -> set[str]:
    return {each.invariant for each in check_group(history)}


def _replaced(history: GroupHistory, index: int, **changes: object) -> GroupHistory:
    old = history.tenures[index]
    fields = {name: getattr(old, name) for name in Tenure.__slots__}
    history.tenures[index] = Tenure(**{**fields, **changes})
    return history


def test_a_good_history_breaks_nothing() -> None:
    assert check_group(_good()) == []


def test_a_gap_within_a_tenure_breaks_i13() -> None:
    assert "I13" in _broken(_replaced(_good(), 0, offsets=(0, 2)))


def test_going_back_within_a_tenure_breaks_i13() -> None:
    assert _broken(_replaced(_good(), 0, offsets=(0, 1, 2, 1, 2))) == {"I13"}


def test_beginning_behind_every_commit_breaks_i13() -> None:
    assert "I13" in _broken(_replaced(_good(), 1, offsets=(6, 7)))


def test_beginning_before_the_commit_breaks_i14() -> None:
    assert _broken(_replaced(_good(), 1, offsets=(0, 1, 2, 3, 4))) == {"I14"}


def test_a_committed_offset_that_is_forgotten_breaks_i14() -> None:
    for told in (-1, 0, 2):
        history = _good()
        history.observed.append(Observed(PLACE, 71, 75, told))
        assert _broken(history) == {"I14"}


def test_an_offset_that_nobody_committed_breaks_i14() -> None:
    history = _good()
    history.observed.append(Observed(PLACE, 71, 75, 6))
    assert _broken(history) == {"I14"}


def test_an_unknown_commit_that_is_seen_and_then_gone_breaks_i14() -> None:
    history = _good()
    history.commits.append(Commit("b", PLACE, began=71, ended=80, offset=9, ok=False))
    history.observed += [Observed(PLACE, 72, 73, 9), Observed(PLACE, 81, 82, 5)]
    assert _broken(history) == {"I14"}


def test_a_commit_of_the_member_before_breaks_i15() -> None:
    history = _good()
    late = Commit("a", PLACE, began=75, ended=80, offset=5, ok=True)
    history.commits.append(late)
    assert _broken(history) == {"I15"}
    history.commits[-1] = Commit("a", PLACE, began=75, ended=80, offset=5, ok=False)
    assert check_group(history) == []


def test_two_owners_whose_commits_are_taken_in_turn_break_i15() -> None:
    history = _replaced(_replaced(_good(), 0, ended=90), 1, began=15, offsets=(0, 1))
    history.commits = [
        Commit(member, PLACE, began=at, ended=at + 1, offset=5, ok=True)
        for at, member in ((20, "a"), (30, "b"), (40, "a"), (50, "b"))
    ]
    history.observed = []
    assert "I15" in _broken(history)


def test_who_learns_late_of_a_partition_and_never_commits_does_no_harm() -> None:
    history = _good()
    history.tenures.append(Tenure("c", PLACE, began=50, ended=55, how="lost", offsets=()))
    assert check_group(history) == []


def test_a_member_that_gets_its_partition_back_may_commit() -> None:
    history = _good()
    history.tenures.append(Tenure("a", PLACE, began=92, ended=99, how="ended", offsets=(5,)))
    history.commits.append(Commit("a", PLACE, began=95, ended=96, offset=6, ok=True))
    assert check_group(history) == []


def test_offsets_out_of_order_break_i16() -> None:
    for bounds in (
        Bounds(PLACE, 4, 3, 5, 102, 2),
        Bounds(PLACE, 0, 6, 5, 102, 2),
        Bounds(PLACE, 0, 3, 5, 102, 3),
        Bounds(PLACE, 0, 3, 5, 102, -1),
    ):
        history = _good()
        history.bounds.append(bounds)
        assert _broken(history) == {"I16"}


def test_a_high_watermark_that_goes_back_breaks_i16() -> None:
    history = _good()
    history.bounds.append(Bounds(PLACE, 0, 3, 4, 102, 2))
    assert _broken(history) == {"I16"}


def test_records_that_nobody_has_read_break_i17() -> None:
    assert "I17" in _broken(_replaced(_good(), 1, offsets=(3,)))


def test_a_partition_without_an_owner_breaks_i17() -> None:
    history = _good()
    assert history.final is not None
    history.final = Final(history.final.timestamps, {}, 1.0, 5.0)
    assert _broken(history) == {"I17"}


def test_a_group_that_settles_too_late_or_never_breaks_i17() -> None:
    history = _good()
    assert history.final is not None
    history.final = Final(history.final.timestamps, {PLACE: "b"}, 6.0, 5.0)
    assert _broken(history) == {"I17"}
    history.final = None
    assert _broken(history) == {"I17"}


# The same by what lies in the log


def _broken_by(*records: GroupRecord) -> set[str]:
    log = GroupLog()
    for record in records:
        log.take([record])
    return {each.invariant for each in log.violations}


def _offset(offset: int) -> GroupRecord:
    key = OffsetCommitKey(group="g", topic="work", partition=0)
    return GroupRecord(key, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0))


def _generation(generation: int, **shares: list[int]) -> GroupRecord:
    members = [
        MemberMetadata(
            member_id=name,
            client_id="c",
            client_host="h",
            session_timeout=1,
            subscription=b"",
            assignment=struct.pack(f">hih4si{len(share)}i", 0, 1, 4, b"work", len(share), *share)
            + b"\xff" * 4,
        )
        for name, share in shares.items()
    ]
    value = GroupMetadataValue(protocol_type="consumer", generation=generation, members=members)
    return GroupRecord(GroupMetadataKey(group="g"), value)


def _epoch(epoch: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=epoch)
    )


def _owns(member: str, owned: list[int], pending: list[int]) -> GroupRecord:
    def named(partitions: list[int]) -> list[CurrentTopicPartitions]:
        return [CurrentTopicPartitions(topic_id=UUID(int=1), partitions=partitions)]

    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=named(owned),
        partitions_pending_revocation=named(pending),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member)
    return GroupRecord(key, value)


def test_a_good_log_breaks_nothing() -> None:
    assert not _broken_by(
        _offset(1),
        _offset(1),
        _offset(5),
        GroupRecord(_offset(5).key, None),
        _offset(0),
        _generation(1, a=[0, 1]),
        _generation(2, a=[0], b=[1]),
        _generation(2),
        _epoch(2),
        _owns("a", [0], [1]),
        _epoch(3),
        _owns("a", [0], []),
        _owns("b", [1], []),
    )


def test_a_stored_offset_that_goes_back_breaks_i14() -> None:
    assert _broken_by(_offset(5), _offset(4)) == {"I14"}


def test_generations_and_epochs_that_go_back_break_i15() -> None:
    assert _broken_by(_generation(2), _generation(1)) == {"I15"}
    assert _broken_by(_epoch(3), _epoch(2)) == {"I15"}


def test_two_stored_owners_break_i15() -> None:
    assert _broken_by(_generation(1, a=[0, 1], b=[1])) == {"I15"}
    assert _broken_by(_epoch(2), _owns("a", [0], [1]), _owns("b", [1], [])) == {"I15"}
