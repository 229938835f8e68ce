"""Connections, retries and time limits of the asyncio client."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from headrace.client import (
    AsyncClient,
    BrokerUnreachable,
    CallTimedOut,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
)
from headrace.client import ClientSettings as Settings
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId
from headrace.network.address import BrokerAddress
from headrace.network.errors import BadFrame, RequestTimedOut
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest
from tests.simulation.loop import VirtualLoop
from tests.support.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.unit.client.aio.conftest import Run

CLUSTER = DescribeClusterResponse(cluster_id="scripted", brokers=[])


async def started(port: int = 9092) -> ScriptedBroker:
    broker = ScriptedBroker(port)
    broker.on(DescribeClusterRequest, lambda _: CLUSTER)
    await broker.start()
    return broker


def in_turn(*answers: object) -> Callable[[object], object]:
    """A script that gives each answer once, the last one for ever."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_a_dead_bootstrap_server_is_passed_over(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        async with AsyncClient("broker:9999,broker:9092") as client:
            assert (await client.admin.describe_cluster()).cluster_id == "scripted"
        assert broker.connections == 1

    run(story())


def test_when_nobody_listens_the_address_and_the_reason_are_told(run: Run) -> None:
    async def story() -> None:
        settings = Settings("broker:9999", call_timeout_ms=1000)
        async with AsyncClient(settings) as client:
            with pytest.raises(CallTimedOut, match=r"cannot connect to broker:9999.*nobody"):
                await client.admin.describe_cluster()

    run(story())


def test_an_answer_that_never_comes_is_given_up_and_asked_for_again(
    run: Run, loop: VirtualLoop
) -> None:
    async def story() -> None:
        broker = await started()
        broker.on(DescribeClusterRequest, in_turn(SILENCE, CLUSTER))  # type: ignore[arg-type]
        async with AsyncClient(Settings("broker:9092", request_timeout_ms=3000)) as client:
            assert (await client.admin.describe_cluster()).cluster_id == "scripted"
        assert 3.0 < loop.time() < 4.0
        assert broker.connections == 2, "answers in order: a late one would be taken for the next"

    run(story())


def test_nobody_waits_longer_because_of_a_patient_request_before_it(
    run: Run, loop: VirtualLoop
) -> None:
    async def story() -> None:
        broker = await started()
        async with AsyncClient("broker:9092") as client:
            await client.connect()
            broker.on(DescribeClusterRequest, lambda _: SILENCE)

            def asked(timeout_ms: int) -> "asyncio.Future[Message | None]":
                request = DescribeClusterRequest(include_cluster_authorized_operations=False)
                return client.requests.submit(
                    SendRequest(NodeId(0), request, DescribeClusterResponse, timeout_ms)
                )

            patient, hasty, later = asked(10_000), asked(1_000), asked(3_000)
            for seconds, answer in ((1, hasty), (3, later), (10, patient)):
                with pytest.raises(RequestTimedOut):
                    await answer
                assert seconds <= loop.time() < seconds + 0.1
            assert broker.connections <= 2, "the first word, and one for all three"

    run(story())


def test_a_connection_that_died_while_idle_is_noticed_in_time(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        broker = await started()
        async with AsyncClient(Settings("broker:9092", request_timeout_ms=1000)) as client:
            await client.admin.describe_cluster()
            await asyncio.sleep(30)
            broker.on(DescribeClusterRequest, in_turn(SILENCE, CLUSTER))  # type: ignore[arg-type]
            await client.admin.describe_cluster()
            assert 31 < loop.time() < 32

    run(story())


def test_a_broken_connection_is_made_again(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        broker.on(DescribeClusterRequest, in_turn(HANG_UP, HANG_UP, CLUSTER))  # type: ignore[arg-type]
        async with AsyncClient("broker:9092") as client:
            assert (await client.admin.describe_cluster()).cluster_id == "scripted"
        assert broker.connections == 3

    run(story())


def test_a_broker_that_accepts_and_says_nothing_is_given_up(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        await loop.create_server(asyncio.Protocol, "broker", 9092)
        async with AsyncClient(Settings("broker:9092", request_timeout_ms=2000)) as client:
            with pytest.raises(BrokerUnreachable, match="did not say what it speaks"):
                await client.connect()

    run(story())


class WebServer(asyncio.Protocol):
    """Answers everything as a web server would."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_something_that_is_no_broker_is_told_apart(run: Run, loop: VirtualLoop) -> None:
    async def story() -> None:
        await loop.create_server(WebServer, "broker", 9092)
        async with AsyncClient("broker:9092") as client:
            with pytest.raises(BadFrame, match="no Kafka listener, or expects TLS"):
                await client.admin.describe_cluster()

    run(story())


class HangUp(asyncio.Protocol):
    """Accepts, and closes at the first bytes, as a proxy whose broker is down."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - asyncio's signature
        self.transport.close()


def test_a_request_that_waited_for_a_connection_was_not_sent_when_that_fails(
    run: Run, loop: VirtualLoop
) -> None:
    async def story() -> None:
        await loop.create_server(HangUp, "broker", 9092)
        await loop.create_server(asyncio.Protocol, "broker", 9093)
        for server in ("broker:9092", "broker:9093", "broker:9999"):
            async with AsyncClient(Settings(server, request_timeout_ms=2000)) as client:
                with pytest.raises(ConnectFailed):
                    await client.connect()

    run(story())


def test_a_request_whose_connection_breaks_after_it_may_have_arrived(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        broker.on(DescribeClusterRequest, lambda _: HANG_UP)
        async with AsyncClient("broker:9092") as client:
            await client.connect()
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            send = SendRequest(NodeId(0), request, DescribeClusterResponse, 1000)
            with pytest.raises(ConnectionLost):
                await client.requests.submit(send)

    run(story())


def test_what_a_broker_that_moved_has_not_answered_is_lost_and_not_closed(run: Run) -> None:
    """A closed client is not retried; a broker that is elsewhere now is."""

    async def story() -> None:
        old, new = await started(), await started(9093)
        old.on(DescribeClusterRequest, lambda _: SILENCE)
        async with AsyncClient("broker:9092") as client:
            await client.topic("t")
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            send = SendRequest(NodeId(0), request, DescribeClusterResponse, 60_000)
            waiting = client.requests.submit(send)
            while not old.requests(DescribeClusterRequest):
                await asyncio.sleep(0.0001)
            moved = BrokerAddress(NodeId(0), "broker", 9093)
            client.requests.session.cluster.add_broker(moved)
            assert await client.requests.submit(send) == CLUSTER
            with pytest.raises(ConnectionLost, match="the broker is at broker:9093 now"):
                await waiting
        assert new.connections == 1

    run(story())


def test_a_broker_that_metadata_does_not_name_is_sent_nothing(run: Run) -> None:
    async def story() -> None:
        await started()
        async with AsyncClient("broker:9092") as client:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            with pytest.raises(ConnectFailed, match="broker 7 is not in"):
                await client.requests.submit(
                    SendRequest(NodeId(7), request, DescribeClusterResponse, 1000)
                )

    run(story())


def test_a_refusal_is_not_retried(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        refusal = DescribeClusterResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message="not you",
            cluster_id="",
            brokers=[],
        )
        broker.on(DescribeClusterRequest, lambda _: refusal)
        async with AsyncClient("broker:9092") as client:
            with pytest.raises(ApiError, match="describe cluster: not you"):
                await client.admin.describe_cluster()
        assert len(broker.requests(DescribeClusterRequest)) == 1

    run(story())


def test_a_cancelled_call_leaves_the_connection_usable(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        async with AsyncClient("broker:9092") as client:
            await client.connect()
            call = asyncio.ensure_future(client.admin.describe_cluster())
            while not broker.requests(DescribeClusterRequest):
                await asyncio.sleep(0.0001)
            call.cancel()
            assert (await client.admin.describe_cluster()).cluster_id == "scripted"
        assert broker.connections == 1

    run(story())


def test_an_idle_connection_is_closed_and_the_next_call_opens_another(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        settings = Settings("broker:9092", connection_idle_ms_max=60_000)
        async with AsyncClient(settings) as client:
            await client.admin.describe_cluster()
            await asyncio.sleep(59)
            await client.admin.describe_cluster()
            assert broker.connections == 1
            await asyncio.sleep(130)
            await client.admin.describe_cluster()
            assert broker.connections == 2

    run(story())


def test_metadata_is_asked_for_again_when_it_is_old(run: Run) -> None:
    async def story() -> None:
        broker = await started()
        async with AsyncClient(Settings("broker:9092", metadata_age_ms_max=1000)) as client:
            await client.topic("t")
            await client.topic("t")
            assert len(broker.requests(MetadataRequest)) == 1
            await asyncio.sleep(2)
            await client.topic("t")
            assert len(broker.requests(MetadataRequest)) == 2

    run(story())


def test_a_closed_client_says_so(run: Run) -> None:
    async def story() -> None:
        await started()
        client = AsyncClient("broker:9092")
        await client.connect()
        await client.close()
        await client.close()
        with pytest.raises(ClientClosed, match="closed"):
            await client.connect()

    run(story())


def test_closing_while_connecting_leaves_nothing_behind(run: Run) -> None:
    async def story() -> None:
        await started()
        client = AsyncClient("broker:9092")
        call = asyncio.ensure_future(client.connect())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises((ClientClosed, BrokerUnreachable)):
            await call

    run(story())
