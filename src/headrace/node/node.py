"""One broker: what is started in which order, and stopped in reverse.

lock and read the data directory  ->  metadata (controller)  ->  partitions
  ->  register, new leader epochs  ->  housekeeping  ->  listeners
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from time import perf_counter
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
from headrace.core.errors import StorageError
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.listeners import SECURITY_PROTOCOLS
from headrace.core.listeners import ListenerConfig as ListenerConfig
from headrace.core.runtime import Clock, Executor, Randomness
from headrace.log.compaction.checkpoint import CleanerCheckpoint
from headrace.log.compaction.runner import Compactor, InlineCompactor
from headrace.log.directory import LogDirectory
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.cache import MetadataCache
from headrace.metadata.controller_channel import ControllerRequests
from headrace.metadata.delta import Delta
from headrace.metadata.image import BrokerEndpoint, Image
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.metadata.publisher import MetadataPublishers, PublisherOrder
from headrace.metadata.quorum import ReplicaKey
from headrace.metadata.records import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_LEVEL_MIN,
)
from headrace.metadata.snapshot_generator import SnapshotGenerator
from headrace.metadata.sole_voter_quorum import SoleVoterQuorum
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
from headrace.security.authorizer import AllowAll, Authorizer

if TYPE_CHECKING:
    from headrace.node.extra_listeners import ExtraListeners

if TYPE_CHECKING:
    from headrace.groups.group_coordinator import GroupCoordinator

logger = logging.getLogger(__name__)

# How long a stop waits for requests under way.
STOP_SECONDS_MAX = 5


class Node:
    """A broker that runs on the current event loop."""

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
        self._descriptors = descriptors
        self._compactor = compactor or InlineCompactor(files)
        self._authorizer = authorizer or AllowAll()
        self.request_metrics = RequestMetrics(seconds)
        self._node_id = NodeId(config.node_id)
        self._listeners: list[Listener] = []
        self._bound_listeners: list[BoundListener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._on_stop = AsyncExitStack()
        self._directory: LogDirectory | None = None
        self._controller: Controller | None = None
        self._snapshots: SnapshotGenerator | None = None
        self._flush_scheduler: FlushScheduler | None = None
        self._groups: GroupCoordinator | None = None
        self._processor: RequestProcessor | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        self.metrics: NodeMetrics | None = None
        self.extra_listeners: ExtraListeners | None = None

    async def start(self) -> None:
        """Serve when this returns; on an error the directory is let go of."""
        try:
            await self._start()
        except BaseException:
            # As it is, without a stop: logs that were not opened yet would be called clean.
            self.kill()
            raise

    async def _start(self) -> None:
        config = self._config
        began = self.request_metrics.now()
        directory = LogDirectory.open(
            self._files,
            config.data_directory,
            self._clock,
            self._randomness,
            node_id=self._node_id,
        )
        self._directory = directory
        self._on_stop.callback(directory.close)
        metadata = MetadataCache()
        publishers = MetadataPublishers(metadata)
        metadata_log = MetadataLog(self._files, directory, self._clock)
        snapshots = self._snapshots = SnapshotGenerator(metadata_log, self._executor)
        self._on_stop.push_async_callback(snapshots.stop)
        publishers.add(PublisherOrder.SNAPSHOTS, snapshots.publish)
        controller = Controller(
            config,
            directory.cluster_id,
            SoleVoterQuorum(
                metadata_log,
                ReplicaKey(self._node_id, directory.meta_properties.directory_id),
                self._executor,
            ),
            publishers,
            randomness=self._randomness,
            executor=self._executor,
        )
        self._controller = controller
        await controller.start()
        self._on_stop.push_async_callback(controller.stop)
        flush_scheduler = self._flush_scheduler = FlushScheduler(
            self._executor, self.request_metrics.now
        )
        shielded = ShieldedExecutor(self._executor)
        replicas = ReplicaManager(
            directory,
            self._node_id,
            config,
            shielded,
            HighWatermarkCheckpoint(self._files, directory.path),
            request_flush=flush_scheduler.schedule if config.log_flush_policy == "fsync" else None,
        )
        # In reverse: what the last flush commits is written down.
        self._on_stop.push_async_callback(_checkpoint_high_watermarks, replicas)
        self._on_stop.push_async_callback(flush_scheduler.close)
        await replicas.load(controller.image)
        # A controller that has started has all of the metadata.
        await replicas.rename_stray_directories()
        # What a killed process left in the page cache counts only once it is on disk; were we
        # to serve before, the high watermark would be seen to fall.
        await flush_scheduler.drain()
        if not directory.clean and not directory.is_new:
            logger.info(
                "recovered after an unclean stop: path=%s partitions=%d records_checked=%d"
                " duration_ms=%d",
                directory.path,
                len(replicas),
                sum(log.log_end_offset - log.recovery_point for log in directory.logs.values()),
                (self.request_metrics.now() - began) * 1000,
            )
        publishers.add(PublisherOrder.REPLICAS, replicas.publish, seen=controller.image)
        channel = LocalControllerChannel(lambda: self.processor, self._node_id)
        controller_requests = ControllerRequests(channel)
        self._on_stop.push_async_callback(controller_requests.close)
        topics = AutoTopicCreationManager(controller_requests, config)
        services = Services(
            config=replicas.config,
            node_id=self._node_id,
            metadata=metadata,
            controller=controller,
            replicas=replicas,
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots),
            make_groups=partial(self._make_groups, controller, publishers, replicas, topics),
            producer_ids=ProducerIds(controller_requests, metadata, self._node_id),
            authorizer=self._authorizer,
            auto_topic_creation=topics,
            request_metrics=self.request_metrics,
            record_work=RecordWork(self._executor),
            disk_reads=DiskReads(self._executor),
            time_slice=TimeSlice(self.request_metrics.now),
            clock=self._clock,
            randomness=self._randomness,
        )
        processor = self._processor = RequestProcessor(services)
        cleaner = LogCleaner(
            replicas,
            self._compactor,
            CleanerCheckpoint(self._files, directory.path),
            self._clock,
            shielded,
        )
        maintenance = LogMaintenance(
            replicas, cleaner, self._clock, shielded, flush_scheduler.schedule_now
        )

        def apply_config(_: Image, __: Image, ___: Delta) -> None:
            if services.config is not replicas.config:
                services.config = replicas.config
                self.request_metrics.set_slow_threshold(
                    unless_negative(replicas.config.request_log_slow_ms)
                )
                maintenance.config_changed()

        self.request_metrics.set_slow_threshold(
            unless_negative(replicas.config.request_log_slow_ms)
        )
        publishers.add(PublisherOrder.CONFIGS, apply_config)
        lag_monitor = EventLoopLagMonitor(
            self.request_metrics.now, on_sample=self.request_metrics.update_log_level
        )
        self.metrics = NodeMetrics(
            replicas,
            self.request_metrics,
            self._listeners,
            cleaner.counts,
            maintenance.counts,
            lambda: None if self._groups is None else self._groups.counts,
            flush_scheduler.flush_times,
            lag_monitor.lag,
        )
        try:
            await self._bind_listeners(processor)
        except OSError:
            # Every log is open and flushed by now: the next start has nothing to recover, and
            # must not say that this one came to a bad end.
            await self.stop()
            raise
        await self._register(controller, directory)
        self._tasks.append(asyncio.get_running_loop().create_task(maintenance.run()))
        self._tasks.append(asyncio.get_running_loop().create_task(lag_monitor.run()))
        for listener in self._listeners:
            listener.open()
        if OFFSETS_TOPIC in metadata.image.topics:
            self._tasks.append(asyncio.get_running_loop().create_task(self._load_groups(services)))

    def _make_groups(
        self,
        controller: Controller,
        publishers: MetadataPublishers,
        replicas: ReplicaManager,
        topics: AutoTopicCreationManager,
    ) -> "GroupCoordinator":
        from headrace.groups.group_coordinator import GroupCoordinator

        groups = GroupCoordinator(
            lambda: controller.image,
            replicas,
            topics,
            self._clock,
            self._randomness,
            self._config,
        )
        self._groups = groups
        self._on_stop.push_async_callback(groups.close)
        publishers.add(PublisherOrder.COORDINATORS, groups.publish)
        groups.start()
        return groups

    async def _load_groups(self, services: Services) -> None:
        """There are groups: their members must be missed if they do not come back."""
        await self._executor.run(partial(import_module, "headrace.groups.group_coordinator"))
        _ = services.groups

    @property
    def processor(self) -> RequestProcessor:
        """Serves requests, whatever they come by; there after `start`."""
        assert self._processor is not None, "the node has not been started"
        return self._processor

    @property
    def services(self) -> Services:
        """What handlers work with; there after `start`."""
        return self.processor.services

    async def open_extra_listeners(self) -> None:
        """Open the listeners beside Kafka's that the config names; after `start`."""
        from headrace.node.extra_listeners import ExtraListeners

        sources = () if self.metrics is None else (self.metrics,)
        self.extra_listeners = ExtraListeners(
            self._config, self.processor, sources, self._executor, self._descriptors
        )
        await self.extra_listeners.open()

    async def _bind_listeners(self, processor: RequestProcessor) -> None:
        """Bind every listener; connections are served from `Listener.open` on."""
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
            self._listeners.append(listener)
            self.addresses[settings.name] = (settings.host, bound.port)
            self._tasks.append(
                loop.create_task(listener.close_idle(idle_check_seconds(idle_seconds)))
            )

    async def _register(self, controller: Controller, directory: LogDirectory) -> None:
        """Introduce this broker to the cluster and take the lead of its partitions anew."""
        endpoints = tuple(self._endpoint(settings) for settings in self._config.parsed_listeners())
        register = RegisterBroker(
            self._node_id,
            self._randomness.uuid(),
            endpoints,
            (directory.meta_properties.directory_id,),
            self._config.broker_rack,
            {METADATA_VERSION: (METADATA_VERSION_LEVEL_MIN, METADATA_VERSION_LEVEL)},
        )
        # Together: decided in this order, one append, one flush.
        await asyncio.gather(
            controller.submit(register),
            controller.submit(UnfenceBroker(self._node_id)),
            controller.submit(BumpLeaderEpochs(self._node_id)),
        )

    def _endpoint(self, settings: ListenerConfig) -> BrokerEndpoint:
        host, port = self.addresses[settings.name]
        return BrokerEndpoint(
            settings.name,
            settings.advertised_host or host,
            settings.advertised_port or port,
            SECURITY_PROTOCOLS.index(settings.security_protocol),
        )

    async def stop(self) -> None:
        """Answer what is under way, flush, and leave a clean directory behind."""
        if self.extra_listeners is not None:
            await self.extra_listeners.close()
        for bound in self._bound_listeners:
            bound.close()
        self._compactor.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for listener in self._listeners:
            listener.stop_reading()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._finish_requests()
        except TimeoutError:
            logger.warning("stopping with requests unanswered: seconds=%d", STOP_SECONDS_MAX)
        for listener in self._listeners:
            listener.close()
        await self._on_stop.aclose()

    async def _finish_requests(self) -> None:
        if self._processor is not None:
            await self._processor.close()
        # Behind it: what those requests appended is waited for as well.
        if self._flush_scheduler is not None:
            await self._flush_scheduler.drain()

    def kill(self) -> None:
        """Drop everything as a SIGKILL would: what is written stays, nothing else happens."""
        if self.extra_listeners is not None:
            self.extra_listeners.abort()
        for bound in self._bound_listeners:
            bound.close()
        for task in self._tasks:
            task.cancel()
        if self._processor is not None:
            self._processor.kill()
        for listener in self._listeners:
            listener.abort()
        self._on_stop.pop_all()
        if self._groups is not None:
            self._groups.kill()
        if self._flush_scheduler is not None:
            self._flush_scheduler.kill()
        if self._controller is not None:
            self._controller.kill()
        if self._snapshots is not None:
            self._snapshots.kill()
        if self._directory is not None:
            self._directory.release_lock()


async def _checkpoint_high_watermarks(replicas: ReplicaManager) -> None:
    try:
        await replicas.checkpoint_high_watermarks()
    except StorageError as error:
        # Nothing of the stop depends on it.
        logger.error("stopping without a checkpoint: error=%s", error)
