"""What a leader knows of its replicas, and how far they let it commit. No I/O.

    own end ........ of what counts as replicated on this node: flushed, or written where the
                     broker's configuration says that this is enough
    ends ........... of the followers, as their fetches say; unknown until the first one
    high watermark . the lowest end within the maximal ISR

The maximal ISR is the committed one and those that are being added to it (KIP-497): once the
controller has committed the change nobody asks again whether they have what was acknowledged.
"""

from collections.abc import Sequence
from typing import Final

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_OFFSET, LeaderEpoch, NodeId, Offset

_NOBODY: Final[frozenset[NodeId]] = frozenset()
# Never written to: a node that is not in it is refused.
_NO_FOLLOWERS: Final[dict[NodeId, Offset]] = {}


class Leader:
    """One leadership: ends with its epoch.

    Invariant: the high watermark never moves back, and stands still while fewer replicas are in
    sync than `min.insync.replicas` asks for, or than there are replicas if that is less.
    """

    __slots__ = (
        "_ends",
        "_min_isr",
        "_own_end",
        "epoch",
        "epoch_start",
        "high_watermark",
        "is_below_min_isr",
        "isr",
        "joining",
        "me",
    )

    def __init__(
        self,
        me: NodeId,
        epoch: LeaderEpoch,
        *,
        replicas: Sequence[NodeId],
        isr: Sequence[NodeId],
        min_isr: int,
        epoch_start: Offset,
        end: Offset,
        high_watermark: Offset,
    ) -> None:
        """`high_watermark` is what this node knew before; it may be further by what it has.
        `epoch_start` is where its log ended when the epoch began."""
        self.me = me
        self.epoch = epoch
        self.epoch_start = epoch_start
        self.high_watermark = high_watermark
        self.isr = isr
        self.joining = _NOBODY
        self._ends = _NO_FOLLOWERS
        if len(replicas) > 1:
            self._ends = {node: NO_OFFSET for node in replicas if node != me}
        self._min_isr = min_isr
        self._own_end = end
        # Too few are in sync for acks=all.
        self.is_below_min_isr = self._lacks_replicas()
        self._advanced()

    def flushed(self, end: Offset) -> Offset:
        """This node has everything below `end`; the high watermark that follows."""
        if end > self._own_end:
            self._own_end = end
        return self._advanced()

    def fetched(self, node: NodeId, offset: Offset) -> Offset:
        """A follower asks for what begins at `offset`, so it has all before it."""
        if node not in self._ends:
            # It is not for us to say that it is wrong: our metadata may be the older.
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"node {node} is no replica here")
        self._ends[node] = offset
        return self._advanced()

    @property
    def knows_what_is_committed(self) -> bool:
        """Whether everything that an earlier leader may have acknowledged counts as committed.

        A new leader's high watermark is behind what clients were told until the others in sync
        have fetched once.
        """
        return self.high_watermark >= self.epoch_start

    def joins(self, node: NodeId) -> None:
        """The controller is asked to add `node` to the ISR: it counts from now on."""
        self.joining |= {node}

    def registered(self, replicas: Sequence[NodeId], isr: Sequence[NodeId], min_isr: int) -> Offset:
        """The controller has committed other replicas or another ISR in this epoch."""
        known = self._ends
        self._ends = {node: known.get(node, NO_OFFSET) for node in replicas if node != self.me}
        self.isr, self.joining = isr, _NOBODY
        return self.min_isr_changed(min_isr)

    def min_isr_changed(self, min_isr: int) -> Offset:
        """`min.insync.replicas` of the topic is another one."""
        self._min_isr = min_isr
        self.is_below_min_isr = self._lacks_replicas()
        return self._advanced()

    def _lacks_replicas(self) -> bool:
        # As Kafka, which lowers the setting to the number of replicas: a topic with one replica
        # takes what a topic with three refuses as long as two of them are away.
        return len(self.isr) < min(self._min_isr, 1 + len(self._ends))

    def _advanced(self) -> Offset:
        lowest = self._own_end
        if self._ends:
            if self.is_below_min_isr:
                return self.high_watermark
            for node in (*self.isr, *self.joining):
                if node != self.me:
                    lowest = min(lowest, self._ends.get(node, NO_OFFSET))
        if lowest > self.high_watermark:
            self.high_watermark = lowest
        return self.high_watermark
