"""The broker of a node, in the order in which it is started; the opposite order stops it.

load    partitions  ->  what requests are served with  ->  maintenance
bind    listening addresses, which nobody is served on yet
serve   registered, in new leader epochs  ->  maintenance runs  ->  listeners open
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from headrace.broker.disk_reads import DiskReads
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.frame_dispatcher import FrameDispatcher
from headrace.broker.listener import ConnectionQuotas, Listener, idle_check_seconds
from headrace.broker.local_controller_channel import LocalControllerChannel
from headrace.broker.metering import RequestMetrics
from headrace.broker.processor import RequestProcessor
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.record_work import RecordWork
from headrace.broker.sender import SendMemory
from headrace.broker.services import Services
from headrace.broker.time_slice import TimeSlice
from headrace.controller.commands import BumpLeaderEpochs, RegisterBroker, UnfenceBroker
from headrace.controller.controller import Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_keys import unless_negative
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.listeners import SECURITY_PROTOCOLS, ListenerConfig
from headrace.core.runtime import Clock, Executor, Randomness
from headrace.log.compaction.checkpoint import CleanerCheckpoint
from headrace.log.compaction.runner import Compactor
from headrace.log.directory import LogDirectory
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.cache import MetadataCache
from headrace.metadata.controller_channel import ControllerRequests
from headrace.metadata.delta import Delta
from headrace.metadata.image import BrokerEndpoint, Image
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.metadata.publisher import MetadataPublishers, PublisherOrder
from headrace.metadata.records import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_LEVEL_MIN,
)
from headrace.node.descriptors import DescriptorShares
from headrace.node.event_loop_lag import EventLoopLagMonitor
from headrace.node.log_cleaner import LogCleaner
from headrace.node.log_maintenance import LogMaintenance
from headrace.node.metrics import NodeMetrics
from headrace.node.network import BoundListener, listen
from headrace.node.shielded_executor import ShieldedExecutor
from headrace.replication.flush_scheduler import FlushScheduler
from headrace.replication.high_watermark_checkpoint import HighWatermarkCheckpoint
from headrace.replication.replica_manager import ReplicaManager
from headrace.security.authorizer import Authorizer

if TYPE_CHECKING:
    from headrace.groups.group_coordinator import GroupCoordinator

logger = logging.getLogger(__name__)

# How long a stop waits for requests under way.
STOP_SECONDS_MAX = 5


class BrokerServer:
    """Needs a controller that has all of the metadata, which is here that of the same node."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: NodeId,
        directory: LogDirectory,
        metadata: MetadataCache,
        publishers: MetadataPublishers,
        controller: Controller,
        request_metrics: RequestMetrics,
        *,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        executor: Executor,
        compactor: Compactor,
        authorizer: Authorizer,
        descriptors: DescriptorShares | None,
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._directory = directory
        self._metadata = metadata
        self._publishers = publishers
        self._controller = controller
        self._request_metrics = request_metrics
        self._clock = clock
        self._randomness = randomness
        self._executor = executor
        self._compactor = compactor
        self._authorizer = authorizer
        self._descriptors = descriptors
        self._shielded = ShieldedExecutor(executor)
        self._flush_scheduler = FlushScheduler(executor, request_metrics.now)
        self._cleaner_checkpoint = CleanerCheckpoint(files, directory.path)
        by_flush = config.log_flush_policy == "fsync"
        self._replicas = ReplicaManager(
            directory,
            node_id,
            config,
            self._shielded,
            HighWatermarkCheckpoint(files, directory.path),
            request_flush=self._flush_scheduler.schedule if by_flush else None,
        )
        self._maintenance: LogMaintenance | None = None
        self._lag_monitor = EventLoopLagMonitor(
            request_metrics.now, on_sample=request_metrics.update_log_level
        )
        self._groups: GroupCoordinator | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._bound_listeners: list[BoundListener] = []
        self.listeners: list[Listener] = []
        self.addresses: dict[str, tuple[str, int]] = {}
        self.processor: RequestProcessor | None = None
        self.metrics: NodeMetrics | None = None

    @property
    def services(self) -> Services:
        """What handlers work with; there after `load`."""
        return self._require_processor().services

    def _require_processor(self) -> RequestProcessor:
        assert self.processor is not None, "the broker has not been loaded"
        return self.processor

    # Start

    async def load(self, on_stop: AsyncExitStack, began: float) -> None:
        """Have everything ready that requests need; `on_stop` is given what ends it.

        `began` is when the start did, by the clock of requests.
        """
        # In reverse: what the last flush commits is written down.
        on_stop.callback(self._replicas.close)
        on_stop.push_async_callback(self._flush_scheduler.close)
        # What is committed while logs are opened comes to the replicas as a change of this image.
        image = self._metadata.image
        await self._open_partitions(image, began)
        self._publishers.add(PublisherOrder.REPLICAS, self._replicas.publish, seen=image)
        services = self._make_services(on_stop)
        self.processor = RequestProcessor(services)
        self._prepare_maintenance(services)

    async def _open_partitions(self, image: Image, began: float) -> None:
        directory, replicas = self._directory, self._replicas
        await replicas.load(image)
        # The controller that fills it has all of the metadata once it has started.
        await replicas.rename_stray_directories()
        # What a killed process left in the page cache counts only once it is on disk; were we
        # to serve before, the high watermark would be seen to fall.
        await self._flush_scheduler.drain()
        if not directory.clean and not directory.is_new:
            logger.info(
                "recovered after an unclean stop: path=%s partitions=%d records_checked=%d"
                " duration_ms=%d",
                directory.path,
                len(replicas),
                sum(log.log_end_offset - log.recovery_point for log in directory.logs.values()),
                (self._request_metrics.now() - began) * 1000,
            )

    def _make_services(self, on_stop: AsyncExitStack) -> Services:
        channel = LocalControllerChannel(self._require_processor, self._node_id)
        controller_requests = ControllerRequests(channel)
        on_stop.push_async_callback(controller_requests.close)
        topics = AutoTopicCreationManager(controller_requests, self._config)
        return Services(
            config=self._replicas.config,
            node_id=self._node_id,
            metadata=self._metadata,
            controller=self._controller,
            replicas=self._replicas,
            fetch_sessions=FetchSessions(self._config.max_incremental_fetch_session_cache_slots),
            make_groups=partial(self._make_groups, on_stop, topics),
            producer_ids=ProducerIds(controller_requests, self._metadata, self._node_id),
            authorizer=self._authorizer,
            auto_topic_creation=topics,
            request_metrics=self._request_metrics,
            record_work=RecordWork(self._executor),
            disk_reads=DiskReads(self._executor),
            time_slice=TimeSlice(self._request_metrics.now),
            clock=self._clock,
            randomness=self._randomness,
        )

    def _make_groups(
        self, on_stop: AsyncExitStack, topics: AutoTopicCreationManager
    ) -> "GroupCoordinator":
        from headrace.groups.group_coordinator import GroupCoordinator

        groups = self._groups = GroupCoordinator(
            # Not the cache, which comes last: a shard that is loaded while publishers hear of an
            # image must not have an older one than they.
            lambda: self._controller.image,
            self._replicas,
            topics,
            self._clock,
            self._randomness,
            self._config,
        )
        on_stop.push_async_callback(groups.runtime.close)
        self._publishers.add(PublisherOrder.COORDINATORS, groups.runtime.publish)
        groups.start()
        return groups

    def _prepare_maintenance(self, services: Services) -> None:
        replicas, metrics = self._replicas, self._request_metrics
        cleaner = LogCleaner(
            replicas, self._compactor, self._cleaner_checkpoint, self._clock, self._shielded
        )
        maintenance = self._maintenance = LogMaintenance(
            replicas, cleaner, self._clock, self._shielded, self._flush_scheduler.schedule_now
        )

        def apply_config(_: Image, __: Image, ___: Delta) -> None:
            if services.config is not replicas.config:
                services.config = replicas.config
                metrics.set_slow_threshold(unless_negative(replicas.config.request_log_slow_ms))
                maintenance.config_changed()

        metrics.set_slow_threshold(unless_negative(replicas.config.request_log_slow_ms))
        self._publishers.add(PublisherOrder.CONFIGS, apply_config)
        self.metrics = NodeMetrics(
            replicas,
            metrics,
            self.listeners,
            cleaner.counts,
            maintenance.counts,
            lambda: None if self._groups is None else self._groups.counts,
            self._flush_scheduler.flush_times,
            self._lag_monitor.lag,
        )

    async def bind(self) -> None:
        """Bind every listener; connections are served from `serve` on."""
        processor = self._require_processor()
        loop = asyncio.get_running_loop()
        count = ConnectionQuotas(
            lambda: self.services.config,
            None if self._descriptors is None else self._descriptors.kafka,
        )
        idle_ms = unless_negative(self._config.connections_max_idle_ms)
        idle_seconds = None if idle_ms is None else idle_ms / 1000
        send_memory = SendMemory(self.services.disk_reads)
        for settings in self._config.parsed_listeners():
            listener = Listener(
                settings.name,
                partial(FrameDispatcher, processor),
                count,
                frame_bytes_max=self._config.socket_request_max_bytes,
                send_memory=send_memory,
                now=loop.time,
                idle_seconds_max=idle_seconds,
            )
            bound = await listen(
                listener.connection,
                settings.host,
                settings.port,
                backlog=self._config.socket_listen_backlog_size,
            )
            self._bound_listeners.append(bound)
            self.listeners.append(listener)
            self.addresses[settings.name] = (settings.host, bound.port)
            self._tasks.append(
                loop.create_task(listener.close_idle(idle_check_seconds(idle_seconds)))
            )

    async def serve(self) -> None:
        """Take the lead of what is led here, and answer requests."""
        assert self._maintenance is not None, "the broker has not been loaded"
        await self._register()
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._maintenance.run()))
        self._tasks.append(loop.create_task(self._lag_monitor.run()))
        for listener in self.listeners:
            listener.open()
        if OFFSETS_TOPIC in self._metadata.image.topics:
            self._tasks.append(loop.create_task(self._load_groups()))

    async def _load_groups(self) -> None:
        """There are groups: their members must be missed if they do not come back."""
        await self._executor.run(partial(import_module, "headrace.groups.group_coordinator"))
        _ = self.services.groups

    async def _register(self) -> None:
        """Introduce this broker to the cluster and take the lead of its partitions anew."""
        endpoints = tuple(self._endpoint(settings) for settings in self._config.parsed_listeners())
        register = RegisterBroker(
            self._node_id,
            self._randomness.uuid(),
            endpoints,
            (self._directory.meta_properties.directory_id,),
            self._config.broker_rack,
            {METADATA_VERSION: (METADATA_VERSION_LEVEL_MIN, METADATA_VERSION_LEVEL)},
        )
        # Together: decided in this order, one append, one flush.
        await asyncio.gather(
            self._controller.submit(register),
            self._controller.submit(UnfenceBroker(self._node_id)),
            self._controller.submit(BumpLeaderEpochs(self._node_id)),
        )

    def _endpoint(self, settings: ListenerConfig) -> BrokerEndpoint:
        host, port = self.addresses[settings.name]
        return BrokerEndpoint(
            settings.name,
            settings.advertised_host or host,
            settings.advertised_port or port,
            SECURITY_PROTOCOLS.index(settings.security_protocol),
        )

    # Stop

    async def stop_serving(self) -> None:
        """Answer what is under way; the rest was given to `on_stop`."""
        for bound in self._bound_listeners:
            bound.close()
        self._compactor.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for listener in self.listeners:
            listener.stop_reading()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._finish_requests()
        except TimeoutError:
            logger.warning("stopping with requests unanswered: seconds=%d", STOP_SECONDS_MAX)
        for listener in self.listeners:
            listener.close()

    async def _finish_requests(self) -> None:
        if self.processor is not None:
            await self.processor.close()
        # Behind it: what those requests appended is waited for as well.
        await self._flush_scheduler.drain()

    def kill(self) -> None:
        """Drop everything as a SIGKILL would."""
        for bound in self._bound_listeners:
            bound.close()
        for task in self._tasks:
            task.cancel()
        if self.processor is not None:
            self.processor.kill()
        for listener in self.listeners:
            listener.abort()
        if self._groups is not None:
            self._groups.runtime.kill()
        self._flush_scheduler.kill()
