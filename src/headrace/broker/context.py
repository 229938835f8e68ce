"""What a handler sees of the world: the services, who asks, and how to answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.core.errors import ApiError, ErrorCode
from headrace.security.authorizer import Action, Authorizer, Operation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.auto_creation import AutoCreation
    from headrace.broker.connection import Connection
    from headrace.broker.fetch_sessions import FetchSessions
    from headrace.broker.producer_ids import ProducerIds
    from headrace.controller.controller import Controller
    from headrace.core.broker_configs import BrokerConfig
    from headrace.core.ids import NodeId
    from headrace.core.seams import Clock, Randomness
    from headrace.protocol.message import Message
    from headrace.replication.replicas import Replicas

_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Services:
    """Everything handlers may call, built once by the node."""

    __slots__ = (
        "authorizer",
        "auto_creation",
        "clock",
        "config",
        "controller",
        "fetch_sessions",
        "node_id",
        "producer_ids",
        "randomness",
        "replicas",
    )

    def __init__(
        self,
        *,
        config: "BrokerConfig",
        node_id: "NodeId",
        controller: "Controller",
        replicas: "Replicas",
        fetch_sessions: "FetchSessions",
        producer_ids: "ProducerIds",
        authorizer: Authorizer,
        auto_creation: "AutoCreation",
        clock: "Clock",
        randomness: "Randomness",
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.controller = controller
        self.replicas = replicas
        self.fetch_sessions = fetch_sessions
        self.producer_ids = producer_ids
        self.authorizer = authorizer
        self.auto_creation = auto_creation
        self.clock = clock
        self.randomness = randomness


class RequestContext:
    """One request: its header, its connection, and the way back."""

    __slots__ = ("_reply", "api_version", "client_id", "connection", "services")

    def __init__(
        self,
        services: Services,
        connection: "Connection",
        api_version: int,
        client_id: str | None,
        reply: Callable[["Message | None"], None],
    ) -> None:
        self.services = services
        self.connection = connection
        self.api_version = api_version
        self.client_id = client_id
        self._reply = reply

    def reply(self, response: "Message | None") -> None:
        """Answer from outside the handler, once; None means that no answer is owed."""
        self._reply(response)

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.services.authorizer.allows(
            Action(
                self.connection.principal,
                self.connection.client_host,
                operation,
                resource_type,
                name,
            )
        )

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Refuse the whole request unless allowed; per-item refusals use `allows`."""
        if not self.allows(operation, resource_type, name):
            raise ApiError(_DENIED[resource_type])
