"""Deadlines by key, without a clock."""

from headrace.machine.timer_queue import TimerQueue


def popped(queue: TimerQueue[str], now_ms: int) -> list[str]:
    found = []
    while (key := queue.pop_expired(now_ms)) is not None:
        found.append(key)
    return found


def test_keys_expire_in_the_order_of_their_deadlines_and_then_of_the_calls() -> None:
    queue: TimerQueue[str] = TimerQueue()
    for key, deadline_ms in (("c", 30), ("z", 20), ("a", 20), ("later", 31)):
        queue.schedule(key, deadline_ms)
    assert queue.next_deadline_ms == 20
    assert popped(queue, 30) == ["z", "a", "c"]
    assert queue.next_deadline_ms == 31


def test_only_the_earliest_deadline_of_a_key_counts() -> None:
    queue: TimerQueue[str] = TimerQueue()
    for deadline_ms in (300, 100, None, 500):
        queue.schedule("a", deadline_ms)
    assert popped(queue, 1_000) == ["a"]


def test_a_key_that_names_the_past_waits_for_the_next_millisecond() -> None:
    queue: TimerQueue[str] = TimerQueue()
    queue.schedule("a", 100)
    assert queue.pop_expired(100) == "a"
    queue.schedule("a", 95)
    assert queue.pop_expired(100) is None
    assert queue.next_deadline_ms == 101
