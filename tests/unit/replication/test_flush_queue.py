"""Who is flushed next: those somebody waits for, and askers in turn."""

from headrace.replication.flush_queue import AWAITED_IN_A_ROW_MAX, FlushQueue


def drain(queue: FlushQueue[str]) -> list[str]:
    taken = []
    while (next_one := queue.take()) is not None:
        taken.append(next_one[0])
    return taken


def test_who_waits_comes_before_what_nobody_waits_for() -> None:
    queue: FlushQueue[str] = FlushQueue()
    queue.add("idle", None)
    queue.add("awaited", "asker")
    assert (queue.take(), queue.take(), queue.take()) == (
        ("awaited", True),
        ("idle", False),
        None,
    )


def test_a_request_for_many_lets_a_request_for_one_go_second() -> None:
    queue: FlushQueue[str] = FlushQueue()
    for number in range(1_000):
        queue.add(f"many-{number}", "many")
    queue.add("one", "one")
    order = drain(queue)
    assert order.index("one") == 1
    assert len(order) == 1_001


def test_what_several_ask_for_is_taken_once() -> None:
    queue: FlushQueue[str] = FlushQueue()
    for asker in ("first", "second"):
        queue.add("shared", asker)
        queue.add(f"own of {asker}", asker)
    queue.add("shared", None)
    assert sorted(drain(queue)) == ["own of first", "own of second", "shared"]
    assert len(queue) == 0


def test_what_nobody_waited_for_is_taken_early_once_somebody_does() -> None:
    queue: FlushQueue[str] = FlushQueue()
    for number in range(3):
        queue.add(str(number), None)
    queue.add("2", "asker")
    assert drain(queue) == ["2", "0", "1"]


def test_what_nobody_waits_for_has_its_turn_in_the_end() -> None:
    queue: FlushQueue[str] = FlushQueue()
    queue.add("idle", None)
    taken = []
    for number in range(2 * AWAITED_IN_A_ROW_MAX):
        queue.add(str(number), "asker")
        next_one = queue.take()
        assert next_one is not None
        taken.append(next_one[0])
    assert taken.index("idle") == AWAITED_IN_A_ROW_MAX


def test_only_what_is_awaited_is_taken_on_request() -> None:
    queue: FlushQueue[str] = FlushQueue()
    queue.add("idle", None)
    assert queue.take(only_awaited=True) is None
    assert queue.take() == ("idle", False)
