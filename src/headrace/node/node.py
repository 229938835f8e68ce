"""One node: what is started in which order, and stopped in reverse.

lock and read the data directory  ->  controller: all of the metadata  ->  broker: partitions
  ->  listening addresses bound  ->  registered and serving
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.broker.metering import RequestMetrics
from headrace.broker.processor import RequestProcessor
from headrace.broker.services import Services
from headrace.controller.controller import Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.listeners import ListenerConfig as ListenerConfig
from headrace.core.runtime import Clock, Executor, Randomness
from headrace.log.compaction.runner import Compactor, InlineCompactor
from headrace.log.directory import LogDirectory
from headrace.metadata.cache import MetadataCache
from headrace.metadata.publisher import MetadataPublishers
from headrace.node.broker_server import BrokerServer
from headrace.node.controller_server import ControllerServer
from headrace.node.descriptors import DescriptorShares
from headrace.node.metrics import NodeMetrics
from headrace.node.shielded_executor import ShieldedExecutor
from headrace.security.authorizer import AllowAll, Authorizer

if TYPE_CHECKING:
    from headrace.broker.listener import Listener
    from headrace.node.extra_listeners import ExtraListeners


class Node:
    """A broker and its controller on the current event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        executor: Executor,
        compactor: Compactor | None = None,
        authorizer: Authorizer | None = None,
        seconds: Callable[[], float] = perf_counter,
        descriptors: DescriptorShares | None = None,
    ) -> None:
        """`seconds` is the clock that requests are measured by; `descriptors` bounds connections
        beside the config, None where descriptors cannot run out."""
        self._config = config
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._executor = executor
        # The metadata log is written through it.
        self._shielded = ShieldedExecutor(executor)
        self._descriptors = descriptors
        self._compactor = compactor or InlineCompactor(files)
        self._authorizer = authorizer or AllowAll()
        self.request_metrics = RequestMetrics(seconds)
        self._node_id = NodeId(config.node_id)
        self._on_stop = AsyncExitStack()
        self._directory: LogDirectory | None = None
        self._controller_server: ControllerServer | None = None
        self._broker_server: BrokerServer | None = None
        self.extra_listeners: ExtraListeners | None = None

    async def start(self) -> None:
        """Serve when this returns; on an error the directory is let go of."""
        try:
            await self._start()
        except BaseException:
            # As it is, without a stop: logs that were not opened yet would be called clean.
            self._drop()
            try:
                # Two who write to one metadata log would leave none that can be read.
                await self._shielded.wait_until_idle()
            finally:
                self._release_directory()
            raise

    async def _start(self) -> None:
        began = self.request_metrics.now()
        directory = self._directory = LogDirectory.open(
            self._files,
            self._config.data_directory,
            self._clock,
            self._randomness,
            node_id=self._node_id,
        )
        self._on_stop.callback(directory.close)
        metadata = MetadataCache()
        publishers = MetadataPublishers(metadata)
        controller = self._controller_server = ControllerServer(
            self._config,
            self._node_id,
            directory,
            publishers,
            files=self._files,
            clock=self._clock,
            randomness=self._randomness,
            executor=self._shielded,
        )
        await controller.start(self._on_stop)
        broker = self._broker_server = BrokerServer(
            self._config,
            self._node_id,
            directory,
            metadata,
            publishers,
            controller.controller,
            self.request_metrics,
            files=self._files,
            clock=self._clock,
            randomness=self._randomness,
            executor=self._executor,
            compactor=self._compactor,
            authorizer=self._authorizer,
            descriptors=self._descriptors,
        )
        await broker.load(self._on_stop, began)
        try:
            await broker.bind()
        except OSError:
            # Every log is open and flushed by now: the next start has nothing to recover, and
            # must not say that this one came to a bad end.
            await self.stop()
            raise
        await broker.serve()

    # What there is after `start`.

    @property
    def broker(self) -> BrokerServer:
        assert self._broker_server is not None, "the node has not been started"
        return self._broker_server

    @property
    def controller(self) -> Controller:
        assert self._controller_server is not None, "the node has not been started"
        return self._controller_server.controller

    @property
    def processor(self) -> RequestProcessor:
        """Serves requests, whatever they come by."""
        assert self.broker.processor is not None, "the node has not been started"
        return self.broker.processor

    @property
    def services(self) -> Services:
        """What handlers work with."""
        return self.broker.services

    @property
    def listeners(self) -> "list[Listener]":
        return self.broker.listeners

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener, by name."""
        return self.broker.addresses

    @property
    def metrics(self) -> NodeMetrics | None:
        return None if self._broker_server is None else self._broker_server.metrics

    async def open_extra_listeners(self) -> None:
        """Open the listeners beside Kafka's that the config names."""
        from headrace.node.extra_listeners import ExtraListeners

        sources = () if self.metrics is None else (self.metrics,)
        self.extra_listeners = ExtraListeners(
            self._config, self.processor, sources, self._executor, self._descriptors
        )
        await self.extra_listeners.open()

    # Ends

    async def stop(self) -> None:
        """Answer what is under way, flush, and leave a clean directory behind."""
        if self.extra_listeners is not None:
            await self.extra_listeners.close()
        if self._broker_server is not None:
            await self._broker_server.stop_serving()
        await self._on_stop.aclose()

    def kill(self) -> None:
        """Drop everything as a SIGKILL would: what is written stays, nothing else happens."""
        self._drop()
        self._release_directory()

    def _drop(self) -> None:
        if self.extra_listeners is not None:
            self.extra_listeners.abort()
        self._on_stop.pop_all()
        if self._broker_server is not None:
            self._broker_server.kill()
        if self._controller_server is not None:
            self._controller_server.kill()

    def _release_directory(self) -> None:
        if self._directory is not None:
            self._directory.release_lock()
