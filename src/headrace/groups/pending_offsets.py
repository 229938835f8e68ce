"""Offsets that were committed in transactions which have not ended yet.

They count once the transaction is committed, and even then only where nothing newer was committed
for their partition meanwhile.
"""

from collections.abc import Iterator

from headrace.core.ids import TopicPartition
from headrace.groups.offsets import OffsetAndMetadata
from headrace.groups.stored_offsets import StoredOffset

_Place = tuple[str, TopicPartition]


class PendingOffsets:
    """Offsets by the producer whose transaction they belong to."""

    def __init__(self) -> None:
        self.producers: dict[int, dict[_Place, tuple[int, OffsetAndMetadata]]] = {}
        """Those with an open transaction, and what it has committed; not to be changed."""
        # Counts what was put, so that of two transactions the later commit is known.
        self._puts = 0

    def __len__(self) -> int:
        return sum(map(len, self.producers.values()))

    def put(self, producer_id: int, offset: StoredOffset) -> None:
        """A commit in an open transaction."""
        self._puts += 1
        place = offset.group_id, offset.partition
        self.producers.setdefault(producer_id, {})[place] = self._puts, offset.committed

    def drop_older(self, group_id: str, partition: TopicPartition) -> None:
        """It was committed outside of transactions: what is pending for it is older."""
        self._drop_older((group_id, partition), self._puts)

    def end(self, producer_id: int, *, commit: bool) -> Iterator[StoredOffset]:
        """The transaction has ended: the offsets that count from now on."""
        ended = self.producers.pop(producer_id, {})
        if commit:
            for place, (put, committed) in ended.items():
                self._drop_older(place, put)
                yield StoredOffset(*place, committed)

    def _drop_older(self, place: _Place, newest: int) -> None:
        for offsets in self.producers.values():
            if place in offsets and offsets[place][0] <= newest:
                del offsets[place]
