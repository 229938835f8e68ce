"""The metadata cache."""

from uuid import UUID

from headrace.client.core.cluster import Cluster
from headrace.core.errors import ErrorCode
from headrace.core.ids import LeaderEpoch, NodeId, TopicPartition
from headrace.network.address import BrokerAddress
from tests.support.client_core import metadata

T0 = TopicPartition("t", 0)


def known(**about: int) -> Cluster:
    cluster = Cluster([("boot", 1)])
    cluster.update(metadata(**about, brokers=(0, 1, 2)), 0)  # type: ignore[arg-type]  # numbers
    return cluster


def test_an_older_leader_epoch_does_not_bring_a_deposed_leader_back() -> None:
    cluster = known(leader=1, epoch=5)
    cluster.update(metadata(leader=2, epoch=4, brokers=(0, 1, 2)), 10)
    assert cluster.leader(T0) == 1
    cluster.update(metadata(leader=2, epoch=6, brokers=(0, 1, 2)), 20)
    assert cluster.leader(T0) == 2


def test_a_topic_created_anew_starts_with_its_own_epochs() -> None:
    cluster = known(leader=1, epoch=5)
    again = UUID(int=8)
    cluster.update(metadata(leader=2, epoch=0, brokers=(0, 1, 2), topic_id=again), 10)
    assert cluster.leader(T0) == 2
    assert cluster.topic_id("t") == again


def test_a_broker_may_name_the_new_leader_itself() -> None:
    cluster = known(leader=1, epoch=5)
    assert not cluster.update_leader(T0, NodeId(2), LeaderEpoch(5))
    assert not cluster.update_leader(T0, NodeId(9), LeaderEpoch(6)), "its address is not known"
    cluster.add_broker(BrokerAddress(NodeId(9), "new", 9092))
    assert cluster.update_leader(T0, NodeId(9), LeaderEpoch(6))
    assert (cluster.leader(T0), cluster.leader_epoch(T0)) == (9, 6)


def test_a_leader_that_is_not_among_the_brokers_is_no_leader() -> None:
    cluster = known(leader=7)
    assert cluster.leader(T0) is None


def test_a_forgotten_topic_is_stale_but_still_usable() -> None:
    cluster = known(leader=1)
    assert not cluster.is_stale("t", 100, 1000)
    assert cluster.is_stale("t", 2000, 1000)
    cluster.mark_stale(["t"])
    assert cluster.is_stale("t", 0, 1000)
    assert cluster.leader(T0) == 1


def test_a_topic_with_an_error_is_gone_and_its_error_kept() -> None:
    cluster = known(leader=1)
    cluster.update(metadata(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 10)
    assert cluster.leader(T0) is None
    assert cluster.topic_errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_an_error_code_of_the_future_is_no_reason_to_fall() -> None:
    cluster = known()
    cluster.update(metadata(error_code=31999), 10)
    assert cluster.topic_errors == {"t": ErrorCode.UNKNOWN_SERVER_ERROR}


def test_any_broker_means_connected_ones_first_and_bootstrap_servers_last() -> None:
    cluster = known()
    assert cluster.candidates([NodeId(2)]) == [2, 0, 1, -2]
    address = cluster.address(NodeId(-2))
    assert address is not None
    assert str(address) == "boot:1"
