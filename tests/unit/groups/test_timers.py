"""What a shard asks to be called for: its groups, and the expiration of offsets."""

import pytest

from headrace.groups import offset_requests
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import EXPIRATION_MS_MIN, GroupShard
from headrace.groups.shard_state import ShardState
from tests.support.classic_shard import GROUP, SESSION_MS, ClassicShard
from tests.support.group_wire import commit_request

INTERVAL_MS = 7_000


def stored_offsets(*groups: str, retention_ms: int = 1_000) -> ClassicShard:
    """Groups that only store an offset each, which is soon to be forgotten."""
    settings = GroupSettings(
        offsets_retention_ms=retention_ms, offsets_retention_check_interval_ms=INTERVAL_MS
    )
    shard = ClassicShard(settings)
    for group in groups:
        result = shard.new_result()
        offset_requests.commit(shard.shard, commit_request(group, "t", {0: 1}), 9, "c", result)
        shard.finish(result)
    return shard


def test_once_loaded_every_group_has_its_time_and_offsets_theirs() -> None:
    shard = ClassicShard(
        GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_check_interval_ms=INTERVAL_MS)
    )
    shard.stable_pair()
    replayed = shard.replayed()
    result = shard.new_result()
    replayed.loaded(result)
    assert result.timers == [
        (GROUP, shard.now_ms + SESSION_MS),
        (None, shard.now_ms + INTERVAL_MS),
    ]


def test_offsets_are_looked_at_again_and_again() -> None:
    shard = stored_offsets("a", "b")
    for _ in range(2):
        shard.now_ms += INTERVAL_MS
        result = shard.new_result()
        shard.shard.timer(None, result)
        shard.finish(result)
        assert result.timers == [(None, shard.now_ms + INTERVAL_MS)]
    assert (len(shard.shard.offsets), shard.shard.groups) == (0, {})
    assert shard.shard.counts.expired_offsets == 2
    assert shard.replayed().groups == {}


def test_however_often_they_are_to_be_looked_at_there_is_a_pause() -> None:
    shard = ClassicShard(GroupSettings(offsets_retention_check_interval_ms=1))
    result = shard.new_result()
    GroupShard().loaded(result)
    assert result.timers == [(None, shard.now_ms + EXPIRATION_MS_MIN)]


def test_a_group_whose_offsets_cannot_be_looked_at_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shard = stored_offsets("bad", "good")
    sound = offset_requests.expire_offsets

    def expire(state: ShardState, group_id: str, *arguments: object) -> None:
        if group_id == "bad":
            raise ZeroDivisionError("a fault of one group")
        sound(state, group_id, *arguments)  # type: ignore[arg-type]  # handed on as they are

    monkeypatch.setattr(offset_requests, "expire_offsets", expire)
    shard.now_ms += INTERVAL_MS
    result = shard.new_result()
    shard.shard.timer(None, result)
    assert list(shard.shard.groups) == ["bad"]
    assert "a fault of one group" in caplog.text
    assert result.timers, "it will be looked at again"
