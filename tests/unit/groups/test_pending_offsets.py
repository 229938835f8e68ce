"""Offsets that were committed in transactions, as a load finds them: kept until the marker."""

from uuid import UUID

from headrace.core.ids import TopicPartition
from headrace.groups.offsets import OffsetAndMetadata, commit_record, tombstone
from headrace.groups.records import encode
from headrace.groups.shard import GroupShard
from headrace.groups.stored_offsets import GroupRecordDecoder
from headrace.protocol.records.encode import ControlType
from tests.support.hand_made_log import HandMadeLog

PLACE = TopicPartition("t", 0)
FIRST, SECOND = 7, 8


class OffsetsLog(HandMadeLog):
    def commit(self, offset: int, producer_id: int = -1, partition: int = 0) -> None:
        place = TopicPartition("t", partition)
        committed = OffsetAndMetadata(offset, 0, "", 1, topic_id=UUID(int=1))
        self.records(encode(commit_record("g", place, committed)), producer_id=producer_id)

    def end(self, producer_id: int, kind: ControlType = ControlType.COMMIT) -> None:
        self.control(kind, producer_id)

    def loaded(self) -> GroupShard:
        shard = GroupShard()
        self.load_into(shard, GroupRecordDecoder())
        return shard

    def offset(self, partition: int = 0) -> int | None:
        found = self.loaded().offsets.get("g", TopicPartition("t", partition))
        return None if found is None else found.offset


def test_an_offset_of_a_transaction_counts_once_it_is_committed() -> None:
    log = OffsetsLog()
    log.commit(5, FIRST)
    assert (log.offset(), len(log.loaded().pending_offsets), log.loaded().groups) == (None, 1, {})
    log.end(FIRST)
    assert (log.offset(), len(log.loaded().pending_offsets)) == (5, 0)
    assert list(log.loaded().groups) == ["g"]


def test_an_offset_of_a_transaction_that_is_aborted_never_counts() -> None:
    log = OffsetsLog()
    log.commit(3)
    log.commit(5, FIRST)
    log.end(FIRST, ControlType.ABORT)
    assert (log.offset(), len(log.loaded().pending_offsets)) == (3, 0)
    log.end(FIRST)
    assert log.offset() == 3


def test_a_marker_ends_the_transaction_of_its_own_producer_only() -> None:
    log = OffsetsLog()
    log.commit(5, FIRST, partition=0)
    log.commit(6, SECOND, partition=1)
    log.end(SECOND)
    assert (log.offset(0), log.offset(1)) == (None, 6)


def test_of_two_commits_in_a_transaction_the_last_counts() -> None:
    log = OffsetsLog()
    log.commit(5, FIRST)
    log.commit(4, FIRST)
    log.end(FIRST)
    assert log.offset() == 4


def test_what_was_committed_outside_of_the_transaction_since_then_is_newer() -> None:
    log = OffsetsLog()
    log.commit(5, FIRST)
    log.commit(9)
    log.end(FIRST)
    assert log.offset() == 9


def test_of_two_transactions_the_later_commit_counts_whichever_ends_first() -> None:
    for first, second in ((FIRST, SECOND), (SECOND, FIRST)):
        log = OffsetsLog()
        log.commit(5, FIRST)
        log.commit(9, SECOND)
        log.end(first)
        log.end(second)
        assert log.offset() == 9


def test_a_deletion_meanwhile_does_not_take_away_what_is_committed_afterwards() -> None:
    log = OffsetsLog()
    log.commit(3)
    log.commit(5, FIRST)
    log.records(encode(tombstone("g", PLACE)))
    log.end(FIRST)
    assert log.offset() == 5
