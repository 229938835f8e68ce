"""The gateway in its two forms, for tests that must hold in both.

local: a node on the test's own loop, requests handed to its handlers. remote: a broker process,
requests over sockets.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from headrace.broker.in_process import in_process_client
from headrace.client import AsyncClient, ClientSettings
from headrace.gateway import Gateway, GatewayLimits
from headrace.node.node import Node
from tests.support.brokers import HeadraceProcess
from tests.support.nodes import running_node

FORMS = ("local", "remote")
# Quick rebalances: members hear of each other's coming and going at once.
QUICK_GROUPS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}


def local_gateway(node: Node, limits: GatewayLimits | None = None, name: str = "test") -> Gateway:
    """A gateway into a node of this process."""
    client = in_process_client(node.processor, name=name, listener=next(iter(node.addresses)))
    return Gateway(client, limits=limits)


def remote_gateway(bootstrap_servers: str, limits: GatewayLimits | None = None) -> Gateway:
    """A gateway over sockets, impatient enough for tests."""
    settings = ClientSettings(bootstrap_servers, call_timeout_ms=15_000)
    return Gateway(AsyncClient(replace(settings, request_timeout_ms=10_000)), limits=limits)


@asynccontextmanager
async def gateway_of(
    form: str,
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    limits: GatewayLimits | None = None,
) -> AsyncIterator[Gateway]:
    """A gateway of this form to a broker of its own."""
    static = {"log.flush.policy": "os", **QUICK_GROUPS, **(settings or {})}
    async with AsyncExitStack() as stack:
        if form == "local":
            named = {key.replace(".", "_"): value for key, value in static.items()}
            running = running_node(directory, **named)  # type: ignore[arg-type]  # all are keys
            node = await stack.enter_async_context(running)
            gateway = local_gateway(node, limits)
        else:
            broker = HeadraceProcess(directory / f"data-{os.getpid()}", static)
            broker.start()
            stack.callback(broker.stop)
            gateway = remote_gateway(broker.bootstrap_servers, limits)
        yield await stack.enter_async_context(gateway)
