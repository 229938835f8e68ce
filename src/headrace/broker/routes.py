"""Which APIs are served, in which versions, on which listeners, and where their handlers live.

This table is what ApiVersions advertises, on each listener what is served there. A handler's
module, and the messages it needs, are imported when the first such request arrives: a broker that
only carries data never loads the admin half of the protocol.
"""

import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from headrace.broker.request import RequestContext
from headrace.core.errors import ErrorCode
from headrace.core.listeners import ListenerType
from headrace.protocol.api_keys import APIS, ApiKey
from headrace.protocol.message import Message

HandlerCall = Callable[[RequestContext, Any], Message | Awaitable[Message] | None]
Refusal = Callable[[Any, ErrorCode, str | None], Message]
H = TypeVar("H", bound=Callable[..., object])


class Handler(NamedTuple):
    """A loaded handler; `refuse` shapes the answer to a request that is denied as a whole."""

    call: HandlerCall
    request_class: type[Message]
    is_async: bool
    refuse: Refusal | None


def handles(request_class: type[Message], *, refuse: Refusal | None = None) -> Callable[[H], H]:
    """Mark the one function of a handler module that serves `request_class`."""

    def mark(call: H) -> H:
        call.handler = Handler(  # type: ignore[attr-defined]  # read back by `load`
            call,  # type: ignore[arg-type]  # the decorated signature is checked at its definition
            request_class,
            inspect.iscoroutinefunction(call),
            refuse,
        )
        return call

    return mark


class Route(NamedTuple):
    """An advertised API: the versions we name and the lowest one we really decode.

    What is `forwarded` is decided by the controller: Kafka's brokers hand it on as it is.
    """

    api_key: ApiKey
    module: str
    lowest_version: int
    highest_version: int
    lowest_served: int
    listeners: frozenset[ListenerType]
    forwarded: bool

    def load(self) -> Handler:
        module = import_module(f"headrace.broker.handlers.{self.module}")
        handler = getattr(module, self.module).handler
        assert isinstance(handler, Handler)
        return handler


_ON_BROKERS = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)
# Of those that Kafka's controllers serve, the ones that need nothing but the controller.
_ON_CONTROLLERS = (
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
_FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)


def _route(api_key: ApiKey) -> Route:
    # Clients that ask "is Produce v0 there?" before they compress get their yes
    # (KAFKA-18659); nobody sends it.
    known = APIS[api_key]
    return Route(
        api_key,
        api_key.name.lower(),
        0 if api_key is ApiKey.PRODUCE else known.lowest_version,
        known.highest_version,
        known.lowest_version,
        frozenset(
            kind
            for kind, served in (
                (ListenerType.BROKER, _ON_BROKERS),
                (ListenerType.CONTROLLER, _ON_CONTROLLERS),
            )
            if api_key in served
        ),
        api_key in _FORWARDED,
    )


ROUTES: dict[int, Route] = {
    int(api_key): _route(api_key) for api_key in dict.fromkeys((*_ON_BROKERS, *_ON_CONTROLLERS))
}

# What is advertised on listeners of each kind, by API key.
ROUTES_ON: dict[ListenerType, dict[int, Route]] = {
    kind: {key: route for key, route in ROUTES.items() if kind in route.listeners}
    for kind in ListenerType
}
