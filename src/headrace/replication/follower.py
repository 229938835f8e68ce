"""What a replica knows while another node leads, or none does. No I/O.

It cannot fetch yet. What it must not do is what keeps the replicas equal: take records from
producers, begin an epoch in its own cache, or count as committed what it alone has flushed.
"""

from headrace.core.ids import LeaderEpoch, NodeId, Offset


class Follower:
    """One epoch of another leader (-1 if there is none)."""

    __slots__ = ("_flushed_end", "epoch", "leader")

    def __init__(self, leader: NodeId, epoch: LeaderEpoch, *, flushed_end: Offset) -> None:
        self.leader = leader
        self.epoch = epoch
        self._flushed_end = flushed_end

    def flushed(self, end: Offset) -> None:
        """This node has everything below `end`; that says nothing of the others."""
        if end > self._flushed_end:
            self._flushed_end = end

    def fetch_offset(self, log_end: Offset) -> Offset | None:
        """Where to fetch from; None while something is not flushed.

        The offset of a fetch is all that tells the leader how far this replica is, and what the
        leader then commits must survive the loss of power here.
        """
        return None if self._flushed_end < log_end else log_end
