"""Connections by node, without a client: whoever knows the addresses can send requests."""

import asyncio

import pytest

from headrace.core.ids import NodeId
from headrace.network.address import BrokerAddress
from headrace.network.connection_pool import ConnectionPool
from headrace.network.errors import ClientClosed, ConnectFailed, ConnectionLost, RequestTimedOut
from headrace.network.send_request import SHARED_CHANNEL, SendRequest
from headrace.network.settings import ConnectionSettings
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.support.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.unit.client.aio.conftest import Run

SETTINGS = ConnectionSettings(
    client_id="peer",
    connect_timeout_ms=1_000,
    greeting_timeout_ms=1_000,
    connection_idle_ms_max=60_000,
    response_bytes_max=1 << 20,
)
CLUSTER = DescribeClusterResponse(cluster_id="scripted", brokers=[])


def ask(node: int, *, timeout_ms: int = 500, channel: int = SHARED_CHANNEL) -> SendRequest:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    return SendRequest(NodeId(node), request, DescribeClusterResponse, timeout_ms, channel=channel)


class Peers:
    """Two nodes, and a pool that finds them in a table."""

    def __init__(self) -> None:
        self.addresses = {
            NodeId(n): BrokerAddress(NodeId(n), "broker", 9000 + n) for n in (1, 2, 3)
        }
        self.brokers = {n: ScriptedBroker(9000 + n, node_id=n) for n in (1, 2)}
        self.pool = ConnectionPool(SETTINGS, self.addresses.get)

    async def start(self) -> None:
        for broker in self.brokers.values():
            broker.on(DescribeClusterRequest, lambda _: CLUSTER)
            await broker.start()


def test_each_node_and_channel_has_a_connection_of_its_own(run: Run) -> None:
    async def story() -> None:
        peers = Peers()
        await peers.start()
        pool, own = peers.pool, peers.pool.new_channel()
        asked = [ask(1), ask(1), ask(2), ask(1, channel=own)]
        answers = await asyncio.gather(*(pool.submit(each) for each in asked))
        assert answers == [CLUSTER] * 4
        assert {n: broker.connections for n, broker in peers.brokers.items()} == {1: 2, 2: 1}
        assert sorted(pool.ready_nodes()) == [1, 2]
        await pool.close_channel(own)
        assert await pool.submit(ask(1)) == CLUSTER
        await pool.close()
        assert peers.brokers[1].connections == 2

    run(story())


def test_a_failure_is_told_and_never_retried(run: Run) -> None:
    """The peer may be fenced or have moved: whoever asks has to look, not the pool."""

    async def story() -> None:
        peers = Peers()
        await peers.start()
        pool, first = peers.pool, peers.brokers[1]
        await pool.submit(ask(1))
        first.on(DescribeClusterRequest, lambda _: HANG_UP)
        with pytest.raises(ConnectionLost):
            await pool.submit(ask(1))
        first.on(DescribeClusterRequest, lambda _: SILENCE)
        with pytest.raises(RequestTimedOut):
            await pool.submit(ask(1))
        with pytest.raises(ConnectFailed, match="cannot connect to broker:9003"):
            await pool.submit(ask(3))
        with pytest.raises(ConnectFailed, match="broker 4 is not in"):
            await pool.submit(ask(4))
        assert len(first.requests(DescribeClusterRequest)) == 3
        await pool.close()

    run(story())


def test_a_closed_pool_makes_no_connections(run: Run) -> None:
    async def story() -> None:
        peers = Peers()
        await peers.start()
        waiting = peers.pool.submit(ask(1))
        await peers.pool.close()
        for late in (waiting, peers.pool.submit(ask(2))):
            with pytest.raises(ClientClosed):
                await late
        assert peers.brokers[2].connections == 0

    run(story())
