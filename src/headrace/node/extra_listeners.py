"""The HTTP and text listeners of a node: opened when the Kafka listener is, closed before it.

What they need is loaded by a thread meanwhile, so that the first Kafka clients are served at
full speed.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from headrace.core.listeners import parse_listener_address
from headrace.core.metrics import Family, Metric
from headrace.core.runtime import Executor
from headrace.node.network import AddressUnusable

if TYPE_CHECKING:
    from headrace.broker.processor import RequestProcessor
    from headrace.core.broker_configs import BrokerConfig
    from headrace.gateway import Gateway
    from headrace.node.descriptors import DescriptorShares
    from headrace.text.server import TextServer
    from headrace.web.metrics import MetricsSource
    from headrace.web.server import WebServer

logger = logging.getLogger(__name__)

TEXT_CONNECTIONS = Metric(
    "headrace_text_connections", "gauge", "Open connections of the text listener."
)


_COMMON_MODULES = ("headrace.broker.in_process", "headrace.gateway")


class ListenerBindFailed(OSError):
    """An address that the config names cannot be had; `key` is the one that names it."""

    def __init__(self, key: str, error: OSError) -> None:
        super().__init__(error.errno, f"{key}: {error.strerror}")
        self.key = key


class ExtraListeners:
    """The listeners beside Kafka's of one node, as its config wants them."""

    def __init__(
        self,
        config: "BrokerConfig",
        processor: "RequestProcessor",
        sources: "Sequence[MetricsSource]",
        executor: Executor,
        descriptors: "DescriptorShares | None" = None,
    ) -> None:
        self._descriptors = descriptors
        self._config = config
        self._processor = processor
        self._sources = sources
        self._executor = executor
        self._gateways: list[Gateway] = []
        self._web: WebServer | None = None
        self._text: TextServer | None = None

    @property
    def http(self) -> tuple[str, int] | None:
        """Where the HTTP API listens."""
        return None if self._web is None else (self._web.host, self._web.port)

    @property
    def text(self) -> tuple[str, int] | None:
        """Where the text protocol listens."""
        return None if self._text is None else (self._text.host, self._text.port)

    async def open(self) -> None:
        """Open what the config names; `ListenerBindFailed` where an address cannot be had.

        A listener that nobody has asked for by name may stay closed.
        """
        for key, address, opening in (
            ("http.listener", self._config.http_listener, self._open_http),
            ("text.listener", self._config.text_listener, self._open_text),
        ):
            place = parse_listener_address(key, address)
            if place is None:
                continue
            try:
                await opening(place)
            except OSError as failure:
                error = AddressUnusable(failure, *place)
                if key in self._config.static:
                    raise ListenerBindFailed(key, error) from failure
                option = f"--{key.partition('.')[0]}"
                hint = (
                    f"whoever answers there is not this broker; choose another address with "
                    f"{option} HOST:PORT, or none with {option} off"
                )
                logger.warning(
                    "a listener stays closed: key=%s error=%s hint=%s", key, error.strerror, hint
                )

    async def close(self) -> None:
        """Answer what is under way and let consumers leave their groups."""
        web, self._web = self._web, None
        text, self._text = self._text, None
        for closing in (web, text, *self._gateways):
            try:
                if closing is not None:
                    await closing.close()
            except Exception:
                logger.exception("a listener was not closed in order, the others are")
        self._gateways.clear()

    def collect(self) -> Iterator[Family]:
        """A source of metrics: what the text listener has to tell."""
        yield TEXT_CONNECTIONS.value(0 if self._text is None else self._text.connections)

    def abort(self) -> None:
        """Drop every connection, as a crash would."""
        if self._web is not None:
            self._web.abort()
        if self._text is not None:
            self._text.abort()

    async def _open_http(self, address: tuple[str, int]) -> None:
        for module in (*_COMMON_MODULES, "headrace.web.server", "headrace.web.process_metrics"):
            await self._executor.run(partial(import_module, module))
        from headrace.web.process_metrics import ProcessMetrics
        from headrace.web.server import serve
        from headrace.web.settings import settings_of

        settings = settings_of(self._config, address)
        if self._descriptors is not None:
            connections_max = min(settings.connections_max, self._descriptors.http)
            settings = replace(settings, connections_max=connections_max)
        self._web = await serve(
            self._gateway("http"),
            settings,
            executor=self._executor,
            sources=[*self._sources, ProcessMetrics(self._processor.services.clock), self],
        )

    async def _open_text(self, address: tuple[str, int]) -> None:
        for module in (*_COMMON_MODULES, "headrace.text.server"):
            await self._executor.run(partial(import_module, module))
        from headrace.text.server import serve
        from headrace.text.settings import settings_of

        settings = settings_of(self._config, address)
        if self._descriptors is not None:
            connections_max = min(settings.connections_max, self._descriptors.text)
            settings = replace(settings, connections_max=connections_max)
        self._text = await serve(self._gateway("text"), settings)

    def _gateway(self, name: str) -> "Gateway":
        from headrace.broker.in_process import in_process_client
        from headrace.gateway import Gateway

        listener = self._config.parsed_listeners()[0].name
        gateway = Gateway(in_process_client(self._processor, name=name, listener=listener))
        self._gateways.append(gateway)
        return gateway
