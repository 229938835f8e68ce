"""Incremental fetch sessions: who gets one, what it remembers, when it is taken away."""

import pytest

from headrace.broker.fetch_sessions import FetchPartitionState, FetchPlan, FetchSessions, key_of
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID


def wanted(partition: int, offset: int = 0) -> FetchPartitionState:
    key = key_of(NO_TOPIC_ID, "t", partition, uses_topic_ids=False)
    return FetchPartitionState(key, offset, 1000, -1, -1)


def ask(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    partitions: list[FetchPartitionState],
    *,
    forgotten: list[int] | None = None,
    now_ms: float = 0,
    new_id: int = 1,
    uses_topic_ids: bool = False,
) -> FetchPlan:
    keys = [key_of(NO_TOPIC_ID, "t", each, uses_topic_ids=False) for each in forgotten or []]
    return sessions.plan(
        session_id,
        epoch,
        partitions,
        keys,
        uses_topic_ids=uses_topic_ids,
        new_id=new_id,
        now_ms=now_ms,
    )


def opened(sessions: FetchSessions, partitions: int, **options: float) -> int:
    plan = ask(
        sessions,
        0,
        0,
        [wanted(index) for index in range(partitions)],
        new_id=int(options.get("new_id", 1)),
        now_ms=options.get("now_ms", 0),
    )
    assert plan.session is not None
    return plan.session.id


def test_a_fetch_without_session_leaves_nothing_behind() -> None:
    sessions = FetchSessions(slots=10)
    plan = ask(sessions, 0, -1, [wanted(0)])
    assert plan.session is None
    assert not plan.incremental
    assert len(sessions) == 0


def test_a_session_remembers_partitions_and_takes_changes() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 3)
    plan = ask(sessions, session_id, 1, [wanted(1, offset=7), wanted(5)], forgotten=[0])
    assert plan.incremental
    assert [(each.key.partition, each.fetch_offset) for each in plan.partitions] == [
        (1, 7),
        (2, 0),
        (5, 0),
    ]


def test_epochs_must_follow_one_another() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 1)
    ask(sessions, session_id, 1, [])
    with pytest.raises(ApiError) as refused:
        ask(sessions, session_id, 1, [])
    assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    ask(sessions, session_id, 2, [])


def test_an_unknown_session_is_named_as_such() -> None:
    with pytest.raises(ApiError) as refused:
        ask(FetchSessions(slots=10), 99, 1, [])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 1)
    with pytest.raises(ApiError) as refused:
        ask(sessions, session_id, 1, [wanted(0)], uses_topic_ids=True)
    assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("made_by_id", [False, True])
def test_an_empty_request_of_the_other_kind_is_refused_and_changes_nothing(
    made_by_id: bool,
) -> None:
    sessions = FetchSessions(slots=10)
    plan = ask(sessions, 0, 0, [wanted(0)], uses_topic_ids=made_by_id)
    assert plan.session is not None
    with pytest.raises(ApiError) as refused:
        ask(sessions, plan.session.id, 1, [], uses_topic_ids=not made_by_id)
    assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert ask(sessions, plan.session.id, 1, [], uses_topic_ids=made_by_id).incremental


def test_the_final_epoch_closes_the_session() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 1)
    assert ask(sessions, session_id, -1, []).session is None
    assert len(sessions) == 0


def test_a_session_that_forgets_everything_is_closed() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 1)
    assert ask(sessions, session_id, 1, [], forgotten=[0]).session is None
    assert len(sessions) == 0


def test_a_full_cache_turns_newcomers_away_while_all_are_in_use() -> None:
    sessions = FetchSessions(slots=1)
    opened(sessions, 2)
    assert ask(sessions, 0, 0, [wanted(0)], new_id=2).session is None


def test_a_full_cache_gives_up_its_idle_session() -> None:
    sessions = FetchSessions(slots=1, eviction_ms=100)
    old = opened(sessions, 2)
    assert opened(sessions, 1, new_id=2, now_ms=101) == 2
    with pytest.raises(ApiError):
        ask(sessions, old, 1, [])


def test_sessions_remember_so_many_partitions_in_all() -> None:
    """They outlive their connections: one client could fill the memory with their help."""
    sessions = FetchSessions(slots=10, eviction_ms=100, partitions_max=10)
    first = opened(sessions, 6)
    many = [wanted(index) for index in range(5)]
    assert ask(sessions, 0, 0, many, new_id=2).session is None
    assert opened(sessions, 4, new_id=3) == 3
    assert ask(sessions, 0, 0, [wanted(0)], new_id=4).session is None
    assert ask(sessions, first, 1, [], forgotten=[0, 1]).incremental
    assert opened(sessions, 2, new_id=5) == 5, "what is forgotten makes room"
    assert opened(sessions, 5, new_id=6, now_ms=101) == 6, "and so do those that are idle"
    assert ask(sessions, 6, -1, [], now_ms=101).session is None
    assert opened(sessions, 10, new_id=7, now_ms=300) == 7


def test_a_session_that_outgrows_the_cache_is_begun_anew() -> None:
    sessions = FetchSessions(slots=10, partitions_max=10)
    session_id = opened(sessions, 6)
    with pytest.raises(ApiError) as refused:
        ask(sessions, session_id, 1, [wanted(index) for index in range(11)])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, 10, new_id=2) == 2, "it has left its room to others"


def test_only_news_is_told_again() -> None:
    partition = wanted(0)
    assert partition.take_changes(False, high_watermark=5, log_start_offset=0)
    assert not partition.take_changes(False, high_watermark=5, log_start_offset=0)
    assert partition.take_changes(False, high_watermark=6, log_start_offset=0)
    assert partition.take_changes(True, high_watermark=6, log_start_offset=0)


def test_whoever_got_data_goes_to_the_end_of_the_queue() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 3)
    plan = ask(sessions, session_id, 1, [])
    assert plan.session is not None
    plan.session.rotate([plan.partitions[0].key])
    again = ask(sessions, session_id, 2, [])
    assert [each.key.partition for each in again.partitions] == [1, 2, 0]


def test_a_partition_forgotten_while_a_fetch_waited_is_no_fault() -> None:
    sessions = FetchSessions(slots=10)
    session_id = opened(sessions, 2)
    waiting = ask(sessions, session_id, 1, [])
    ask(sessions, session_id, 2, [], forgotten=[0])
    assert waiting.session is not None
    waiting.session.rotate([each.key for each in waiting.partitions])
    assert [each.key.partition for each in ask(sessions, session_id, 3, []).partitions] == [1]
