"""How far a leader may commit, by itself and against a model that keeps every replica's end."""

from random import Random

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import LeaderEpoch, NodeId, Offset
from headrace.replication.leader import Leader

ME, SECOND, THIRD, STRANGER = (NodeId(node) for node in (1, 2, 3, 9))
ALL = (ME, SECOND, THIRD)
EPOCH = LeaderEpoch(4)


def leader(
    *,
    replicas: tuple[NodeId, ...] = ALL,
    isr: tuple[NodeId, ...] = ALL,
    min_isr: int = 1,
    end: int = 0,
    high_watermark: int = 0,
) -> Leader:
    return Leader(
        ME,
        EPOCH,
        replicas=replicas,
        isr=isr,
        min_isr=min_isr,
        epoch_start=Offset(end),
        end=Offset(end),
        high_watermark=Offset(high_watermark),
    )


def test_alone_in_the_isr_it_commits_what_it_has_flushed() -> None:
    alone = leader(replicas=(ME,), isr=(ME,))
    assert alone.flushed(Offset(5)) == 5
    assert alone.flushed(Offset(3)) == 5


def test_the_slowest_of_the_isr_decides() -> None:
    each = leader(end=10)
    assert each.flushed(Offset(10)) == 0, "nothing is known of the others yet"
    assert each.fetched(SECOND, Offset(9)) == 0
    assert each.fetched(THIRD, Offset(7)) == 7
    assert each.fetched(THIRD, Offset(20)) == 9
    assert each.fetched(SECOND, Offset(20)) == 10, "no further than this node itself"


def test_a_replica_out_of_the_isr_holds_up_nobody() -> None:
    assert leader(isr=(ME, SECOND), end=10).fetched(SECOND, Offset(8)) == 8


def test_a_replica_that_is_being_added_counts_already() -> None:
    each = leader(isr=(ME, SECOND), end=10)
    each.fetched(THIRD, Offset(4))
    each.joins(THIRD)
    assert each.fetched(SECOND, Offset(8)) == 4
    # The controller has refused: the committed ISR alone counts.
    assert each.registered(ALL, (ME, SECOND), 1) == 8


def test_a_smaller_isr_lets_the_high_watermark_go_on() -> None:
    each = leader(end=10)
    each.fetched(SECOND, Offset(9))
    assert each.registered(ALL, (ME, SECOND), 1) == 9


@pytest.mark.parametrize(
    ("replicas", "isr", "min_isr", "moves"),
    [
        (ALL, (ME,), 2, False),
        (ALL, (ME, SECOND), 2, True),
        (ALL, (ME, SECOND), 3, False),
        ((ME,), (ME,), 2, True),
        ((ME, SECOND), (ME, SECOND), 3, True),
    ],
)
def test_it_stands_still_below_min_insync_replicas(
    replicas: tuple[NodeId, ...], isr: tuple[NodeId, ...], min_isr: int, moves: bool
) -> None:
    each = leader(replicas=replicas, isr=isr, min_isr=min_isr)
    for node in replicas[1:]:
        each.fetched(node, Offset(6))
    assert each.flushed(Offset(6)) == (6 if moves else 0)
    assert each.is_below_min_isr is not moves
    assert each.min_isr_changed(1) == 6


def test_what_a_new_leader_knew_before_is_kept_until_the_isr_has_answered() -> None:
    each = leader(end=10, high_watermark=6)
    assert each.fetched(SECOND, Offset(10)) == 6
    assert each.fetched(THIRD, Offset(2)) == 6, "it will fetch the rest"
    assert each.fetched(THIRD, Offset(10)) == 10


def test_a_new_leader_knows_what_is_committed_once_all_in_sync_have_fetched() -> None:
    each = leader(end=10, high_watermark=6)
    for node in (SECOND, THIRD):
        assert not each.knows_what_is_committed
        each.fetched(node, Offset(10))
    assert each.knows_what_is_committed
    each.flushed(Offset(12))
    assert each.knows_what_is_committed, "what comes after the start of the epoch is its own"
    assert leader(replicas=(ME,), isr=(ME,), end=10).knows_what_is_committed


def test_a_node_that_is_no_replica_is_told_that_our_metadata_may_be_old() -> None:
    with pytest.raises(ApiError) as refused:
        leader().fetched(STRANGER, Offset(1))
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("seed", range(20))
def test_it_never_moves_back_and_never_passes_who_is_in_sync(seed: int) -> None:
    """Thousands of steps: flushes, fetches, changes of the ISR, of replicas and of the setting."""
    random = Random(seed)
    nodes = [NodeId(node) for node in range(1, 6)]
    replicas, isr, joining, min_isr = set(nodes[:3]), {ME}, set[NodeId](), 1
    ends = dict.fromkeys(nodes, -1)
    ends[ME] = known = 0
    each = leader(replicas=tuple(replicas), isr=tuple(isr), min_isr=min_isr)
    for _ in range(3_000):
        before = each.high_watermark
        kind = random.random()
        if kind < 0.35:
            ends[ME] += random.randrange(5)
            known = each.flushed(Offset(ends[ME]))
        elif kind < 0.8 and len(replicas) > 1:
            node = random.choice(sorted(replicas - {ME}))
            # A follower may come back with less than it had.
            ends[node] = random.choice((ends[ME], max(0, ends[ME] - random.randrange(9))))
            known = each.fetched(node, Offset(ends[node]))
        elif kind < 0.85 and replicas - isr - joining:
            node = random.choice(sorted(replicas - isr - joining))
            joining.add(node)
            each.joins(node)
        elif kind < 0.95:
            if random.random() < 0.3:
                replicas = {ME, *random.sample(nodes[1:], random.randrange(5))}
                ends = {n: end if n in replicas else -1 for n, end in ends.items()}
            isr = {ME, *random.sample(sorted(replicas), random.randrange(len(replicas) + 1))}
            joining = set()
            known = each.registered(tuple(replicas), tuple(isr), min_isr)
        else:
            min_isr = random.randrange(1, 4)
            known = each.min_isr_changed(min_isr)
        assert known == each.high_watermark >= before
        lacks = len(isr) < min(min_isr, len(replicas))
        assert each.is_below_min_isr is lacks
        lowest = min(ends[node] for node in isr | joining)
        if each.high_watermark > before:
            assert not lacks
            assert each.high_watermark == lowest
        elif kind < 0.8 and not lacks:
            assert each.high_watermark >= lowest, "nothing held it up"
