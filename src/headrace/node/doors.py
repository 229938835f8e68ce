"""The plain doors of a node: opened when the Kafka door is, closed before it.

What they need is loaded by a thread meanwhile, so that the first Kafka clients are served at
full speed.
"""

import asyncio
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from headrace.broker.in_process import in_process_client
from headrace.core.listeners import parse_door

if TYPE_CHECKING:
    from headrace.broker.context import Services
    from headrace.core.broker_configs import BrokerConfig
    from headrace.gateway import Gateway
    from headrace.web.metrics import Source
    from headrace.web.server import WebServer

logger = logging.getLogger(__name__)


class Doors:
    """The HTTP door of one node, if its config wants it."""

    def __init__(
        self, config: "BrokerConfig", services: "Services", sources: "Sequence[Source]"
    ) -> None:
        self._config = config
        self._services = services
        self._sources = sources
        self._gateways: list[Gateway] = []
        self._web: WebServer | None = None

    @property
    def http(self) -> tuple[str, int] | None:
        """Where the HTTP door listens."""
        return None if self._web is None else (self._web.host, self._web.port)

    async def open(self) -> None:
        """Open what the config names. `OSError` where an address cannot be had."""
        await self._open_http()

    async def close(self) -> None:
        """Answer what is under way and let consumers leave their groups."""
        web, self._web = self._web, None
        if web is not None:
            await web.close()
        for gateway in self._gateways:
            await gateway.close()
        self._gateways.clear()

    def abort(self) -> None:
        """Drop every connection, as a crash would."""
        if self._web is not None:
            self._web.abort()

    async def _open_http(self) -> None:
        address = parse_door("http.listener", self._config.http_listener)
        if address is None:
            return
        for room in ("headrace.gateway", "headrace.web.server", "headrace.web.process_metrics"):
            await asyncio.to_thread(import_module, room)
        from headrace.web.process_metrics import ProcessMetrics
        from headrace.web.server import serve
        from headrace.web.settings import settings_of

        self._web = await serve(
            self._gateway("http"),
            settings_of(self._config, address),
            sources=[*self._sources, ProcessMetrics()],
        )

    def _gateway(self, door: str) -> "Gateway":
        from headrace.gateway import Gateway

        listener = self._config.parsed_listeners()[0].name
        gateway = Gateway(in_process_client(self._services, door=door, listener=listener))
        self._gateways.append(gateway)
        return gateway
