"""In which order partitions are flushed.

Whoever waits comes before what nobody waits for. Requesters take turns, one partition each: a
request that waits for a thousand partitions comes behind one that waits for a single one as often
as before it. A partition that is asked for anew goes to the end of its requester's queue.
"""

from typing import Generic, TypeVar

Item = TypeVar("Item")

# After so many that were waited for comes one that was not, or those would never have a turn.
AWAITED_IN_A_ROW_MAX = 16


class FlushQueue(Generic[Item]):
    """Every item is taken once, whoever and how many have asked for it."""

    def __init__(self) -> None:
        # The requester whose turn is next comes first. An item may stand in the queues of several:
        # what is no longer in `_awaited` was taken on behalf of another.
        self._queues: dict[object, dict[Item, None]] = {}
        self._awaited: set[Item] = set()
        self._not_awaited: dict[Item, None] = {}
        self._awaited_in_a_row = 0

    def __len__(self) -> int:
        return len(self._awaited) + len(self._not_awaited)

    def add(self, item: Item, requester: object | None) -> None:
        """`requester` waits for it; None if nobody does."""
        if requester is not None:
            self._not_awaited.pop(item, None)
            self._awaited.add(item)
            queue = self._queues.get(requester)
            if queue is None:
                queue = self._queues[requester] = {}
            queue[item] = None
        elif item not in self._awaited:
            self._not_awaited[item] = None

    def take(self, *, only_awaited: bool = False) -> tuple[Item, bool] | None:
        """The next one, and whether somebody waits for it."""
        due = self._not_awaited and not only_awaited
        if due and (not self._awaited or self._awaited_in_a_row >= AWAITED_IN_A_ROW_MAX):
            self._awaited_in_a_row = 0
            item = next(iter(self._not_awaited))
            del self._not_awaited[item]
            return item, False
        while self._queues:
            requester, queue = next(iter(self._queues.items()))
            item = next(iter(queue))
            del queue[item], self._queues[requester]
            if queue:
                self._queues[requester] = queue
            if item in self._awaited:
                self._awaited.remove(item)
                self._awaited_in_a_row += 1
                return item, True
        return None
