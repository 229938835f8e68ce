"""Each invariant's check accepts a good history and rejects one that breaks just that rule."""

import struct
from collections.abc import Sequence

import crc32c
import pytest

from headrace.core.ids import TopicPartition
from tests.support.history import FinalScan, History, Seen
from tests.support.history_checks import check, check_batches

PARTITION = TopicPartition("t", 0)


def batch(base_offset: int, record_count: int = 1, max_timestamp: int = 5) -> bytes:
    """A batch with a header that is right and records that nobody looks at."""
    tail = struct.pack(
        ">hiqqqhii", 0, record_count - 1, 5, max_timestamp, -1, -1, -1, record_count
    ) + bytes(10)
    return struct.pack(">qiibI", base_offset, len(tail) + 9, 0, 2, crc32c.crc32c(tail)) + tail


def acked(history: History, value: bytes, offset: int, acks: int = -1, producer: str = "p") -> None:
    history.acked(history.begin_send(producer, PARTITION, value, acks=acks), offset)


def scanned(history: History, records: Sequence[Seen], end: int | None = None) -> None:
    log_end = len(records) if end is None else end
    history.scanned(FinalScan(PARTITION, 0, log_end, tuple(records), b""))


def broken(history: History, *, flushed_before_ack: bool = True) -> set[str]:
    violations = check(history, flushed_before_ack=flushed_before_ack)
    return {violation.invariant for violation in violations}


def test_a_good_history_has_no_violation() -> None:
    history = History()
    acked(history, b"a", 0)
    history.begin_send("p", PARTITION, b"unknown and there")
    history.failed(history.begin_send("p", PARTITION, b"refused"))
    history.begin_send("p", PARTITION, b"unknown and gone")
    history.crashed(power_cut=True)
    acked(history, b"b", 2)
    history.read("r", PARTITION, history.now(), 1, [(1, b"unknown and there")])
    scanned(history, [(0, b"a"), (1, b"unknown and there"), (2, b"b")])
    assert check(history) == []


@pytest.mark.parametrize("records", [[], [(0, b"other")]])
def test_a_lost_ack_breaks_i1(records: list[Seen]) -> None:
    history = History()
    acked(history, b"a", 0)
    scanned(history, records)
    assert "I1" in broken(history)


def test_what_retention_took_is_not_lost() -> None:
    history = History()
    acked(history, b"a", 0)
    acked(history, b"b", 1)
    history.scanned(FinalScan(PARTITION, 1, 2, ((1, b"b"),), b""))
    assert broken(history) == set()


def test_a_power_cut_may_take_what_only_the_page_cache_had() -> None:
    for acks, flushed_before_ack, lost in ((1, True, False), (-1, True, True), (-1, False, False)):
        history = History()
        acked(history, b"a", 0, acks=acks)
        history.crashed(power_cut=True)
        acked(history, b"b", 0 if not lost else 1)
        scanned(history, [(0, b"b")])
        assert ("I1" in broken(history, flushed_before_ack=flushed_before_ack)) is lost


def test_a_kill_may_not_take_what_was_acked_by_the_leader() -> None:
    history = History()
    acked(history, b"a", 0, acks=1)
    history.crashed(power_cut=False)
    scanned(history, [])
    assert "I1" in broken(history)


def test_two_values_for_one_offset_break_i2() -> None:
    history = History()
    acked(history, b"a", 0)
    history.begin_send("p", PARTITION, b"b")
    history.read("r", PARTITION, history.now(), 0, [(0, b"b")])
    scanned(history, [(0, b"a")])
    assert "I2" in broken(history)


def test_an_ack_below_what_was_known_breaks_i3() -> None:
    history = History()
    acked(history, b"a", 5)
    acked(history, b"b", 4)
    assert broken(history) == {"I3"}


def test_a_shared_offset_breaks_i3() -> None:
    history = History()
    first = history.begin_send("p", PARTITION, b"a")
    second = history.begin_send("q", PARTITION, b"b")
    history.acked(first, 0)
    history.acked(second, 0)
    assert "I3" in broken(history)


def test_a_record_nobody_sent_breaks_i4() -> None:
    history = History()
    scanned(history, [(0, b"ghost")])
    assert broken(history) == {"I4"}


def test_a_failed_send_that_is_read_breaks_i4() -> None:
    history = History()
    history.failed(history.begin_send("p", PARTITION, b"a"))
    scanned(history, [(0, b"a")])
    assert broken(history) == {"I4"}


def test_an_unknown_send_below_what_was_known_breaks_i4() -> None:
    history = History()
    acked(history, b"a", 1)
    history.begin_send("q", PARTITION, b"late")
    scanned(history, [(0, b"late"), (1, b"a")])
    assert broken(history) == {"I4"}


def test_a_record_twice_breaks_i5_only_for_idempotent_producers() -> None:
    for idempotent in (True, False):
        history = History()
        history.begin_send("p", PARTITION, b"a", idempotent=idempotent)
        scanned(history, [(0, b"a"), (1, b"a")])
        assert broken(history) == ({"I5"} if idempotent else set())


def test_records_of_one_producer_out_of_order_break_i6() -> None:
    history = History()
    for value in (b"a", b"b"):
        history.begin_send("p", PARTITION, value)
    history.begin_send("q", PARTITION, b"c")
    scanned(history, [(0, b"c"), (1, b"b"), (2, b"a")])
    assert broken(history) == {"I6"}


def test_a_gap_breaks_i13() -> None:
    for records, end in ([(0, b"a"), (2, b"b")], 3), ([(0, b"a")], 2), ([(1, b"a")], 2):
        history = History()
        for value in (b"a", b"b"):
            history.begin_send("p", PARTITION, value)
        scanned(history, records, end)
        assert broken(history) == {"I13"}


def test_whole_batches_are_accepted() -> None:
    assert check_batches(batch(0, 3) + batch(3) + batch(4, 2)) == []


@pytest.mark.parametrize(
    "data",
    [
        batch(0)[:-1],
        batch(0) + b"stray",
        batch(0)[:-1] + b"\1",
        batch(0) + batch(2),
        batch(0, 0),
        batch(0, max_timestamp=4),
        batch(0)[:16] + b"\1" + batch(0)[17:],
    ],
    ids=["cut", "stray", "flipped", "gap", "empty", "timestamps", "magic"],
)
def test_damaged_batches_break_i7(data: bytes) -> None:
    assert {violation.invariant for violation in check_batches(data)} == {"I7"}
