"""What a follower tells its leader by where it fetches from."""

from headrace.core.ids import LeaderEpoch, NodeId, Offset
from headrace.replication.follower import Follower


def test_it_fetches_only_from_what_is_flushed() -> None:
    follower = Follower(NodeId(2), LeaderEpoch(1), flushed_end=Offset(3))
    assert follower.fetch_offset(Offset(3)) == 3
    assert follower.fetch_offset(Offset(5)) is None, "a power cut here could take what was told"
    follower.flushed(Offset(5))
    assert follower.fetch_offset(Offset(5)) == 5
    follower.flushed(Offset(4))
    assert follower.fetch_offset(Offset(5)) == 5
