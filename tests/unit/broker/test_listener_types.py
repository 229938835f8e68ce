"""What is served depends on the listener that a request came through, and on nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.broker.in_process import InProcessConnection
from headrace.broker.request import RequestOrigin
from headrace.broker.routes import ROUTES, ROUTES_ON
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId
from headrace.core.listeners import ListenerType
from headrace.network.address import BrokerAddress
from headrace.network.errors import UnsupportedApi
from headrace.network.send_request import SendRequest
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import encode_request
from headrace.protocol.message import Message
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.security.authorizer import AclOperation, Action, Authorizer
from headrace.security.principal import ANONYMOUS, Principal
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

NODE = NodeId(0)
CLIENT = RequestOrigin(ANONYMOUS, "/192.0.2.1", "PLAINTEXT")
BROKER = RequestOrigin(
    Principal("User", "broker"), "/192.0.2.2", "CONTROLLER", ListenerType.CONTROLLER
)

ONLY_OF_BROKERS: dict[ApiKey, tuple[Message, type[Message]]] = {
    ApiKey.ALLOCATE_PRODUCER_IDS: (
        AllocateProducerIdsRequest(broker_id=NODE),
        AllocateProducerIdsResponse,
    ),
}
"""A request of each API that only controllers serve."""


@asynccontextmanager
async def connection_to(
    directory: Path, authorizer: Authorizer | None = None
) -> AsyncIterator[InProcessConnection]:
    async with running_node(directory, authorizer, log_flush_policy="os") as node:
        yield InProcessConnection(BrokerAddress(NODE, "here", 1), node.processor, CLIENT, "test")


def ask(request: Message, response_class: type[Message]) -> SendRequest:
    return SendRequest(NODE, request, response_class, 5_000)


def block(connection: InProcessConnection) -> SendRequest:
    """A request for producer ids, by this broker as it is registered."""
    image = connection._processor.services.metadata.image
    request = AllocateProducerIdsRequest(broker_id=NODE, broker_epoch=image.brokers[NODE].epoch)
    return ask(request, AllocateProducerIdsResponse)


@pytest.mark.parametrize("origin", [CLIENT, BROKER], ids=lambda origin: origin.listener)
async def test_each_listener_says_what_it_serves(tmp_path: Path, origin: RequestOrigin) -> None:
    async with connection_to(tmp_path) as connection:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        response = await connection.submit(ask(request, ApiVersionsResponse), origin)
    assert isinstance(response, ApiVersionsResponse)
    assert [api.api_key for api in response.api_keys] == list(ROUTES_ON[origin.listener_type])


async def test_controllers_serve_brokers_and_brokers_serve_clients(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as connection:
        with pytest.raises(UnsupportedApi):
            await connection.submit(block(connection), CLIENT)
        with pytest.raises(UnsupportedApi):
            await connection.submit(ask(MetadataRequest(topics=None), MetadataResponse), BROKER)
        blocks = [await connection.submit(block(connection), BROKER) for _ in range(2)]
    ranges = []
    for each in blocks:
        assert isinstance(each, AllocateProducerIdsResponse)
        ranges.append(range(each.producer_id_start, each.producer_id_start + 1000))
        assert (each.error_code, each.producer_id_len) == (0, 1000)
    assert ranges[0].stop == ranges[1].start


async def test_a_request_of_controllers_costs_a_client_its_connection(tmp_path: Path) -> None:
    frame = encode_request(AllocateProducerIdsRequest(broker_id=NODE), 0, 1, "c")
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        client.send_bytes(frame)
        assert await client.is_closed_by_broker()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (AllocateProducerIdsRequest(broker_id=7), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (AllocateProducerIdsRequest(broker_id=0, broker_epoch=7_000), ErrorCode.STALE_BROKER_EPOCH),
    ],
)
async def test_ids_are_for_brokers_that_are_registered(
    tmp_path: Path, request_: AllocateProducerIdsRequest, code: ErrorCode
) -> None:
    async with connection_to(tmp_path) as connection:
        response = await connection.submit(ask(request_, AllocateProducerIdsResponse), BROKER)
    assert isinstance(response, AllocateProducerIdsResponse)
    assert (response.error_code, response.producer_id_len) == (code, 0)


def test_every_route_of_controllers_alone_is_refused_here() -> None:
    """Those that clients can send too are in `test_authorization`."""
    alone = set(ROUTES_ON[ListenerType.CONTROLLER]) - set(ROUTES_ON[ListenerType.BROKER])
    assert alone == set(ONLY_OF_BROKERS), "add a request to ONLY_OF_BROKERS"


@pytest.mark.parametrize("api_key", sorted(ONLY_OF_BROKERS), ids=lambda key: key.name)
async def test_what_brokers_ask_is_for_cluster_action(tmp_path: Path, api_key: ApiKey) -> None:
    asked: list[Action] = []

    class DenyAll:
        def allows(self, action: Action) -> bool:
            asked.append(action)
            return False

    async with connection_to(tmp_path, DenyAll()) as connection:
        response = await connection.submit(ask(*ONLY_OF_BROKERS[api_key]), BROKER)
    assert [action.operation for action in asked] == [AclOperation.CLUSTER_ACTION]
    code = getattr(response, "error_code", None)
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_each_request_is_authorized_by_its_own_origin(tmp_path: Path) -> None:
    asked: list[Action] = []

    class NoClusterAction:
        def allows(self, action: Action) -> bool:
            asked.append(action)
            return action.operation is not AclOperation.CLUSTER_ACTION

    async with connection_to(tmp_path, NoClusterAction()) as connection:
        response = await connection.submit(block(connection), BROKER)
    assert isinstance(response, AllocateProducerIdsResponse)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [(action.principal, action.host) for action in asked] == [BROKER[:2]]


def test_what_is_forwarded_is_served_on_both_sides() -> None:
    forwarded = {ApiKey(key).name for key, route in ROUTES.items() if route.forwarded}
    assert forwarded == {
        "CREATE_TOPICS",
        "DELETE_TOPICS",
        "ALTER_CONFIGS",
        "CREATE_PARTITIONS",
        "INCREMENTAL_ALTER_CONFIGS",
    }
    for route in ROUTES.values():
        if route.forwarded:
            assert route.listeners == {ListenerType.BROKER, ListenerType.CONTROLLER}
