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

from headrace.broker.auto_creation import AutoCreation
from headrace.broker.context import Services
from headrace.broker.disk_reads import DiskReads
from headrace.broker.dispatch import Dispatcher
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.listener import ConnectionCount, Listener, look_seconds
from headrace.broker.metering import RequestMeters
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.record_work import RecordWork
from headrace.broker.sender import SendMemory
from headrace.controller.commands import BumpLeaderEpochs, RegisterBroker, UnfenceBroker
from headrace.controller.controller import Controller
from headrace.controller.image import Delta, Endpoint, Image
from headrace.controller.names import OFFSETS_TOPIC
from headrace.controller.records import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_LEVEL_MIN,
)
from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_keys import unless_negative
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.listeners import SECURITY_PROTOCOLS
from headrace.core.listeners import Listener as ListenerConfig
from headrace.core.seams import Clock, Executor, Randomness
from headrace.log.compaction.checkpoint import CleanerCheckpoint
from headrace.log.compaction.runner import Compactor, InlineCompactor
from headrace.log.directory import LogDirectory
from headrace.node.cleaning import Cleaning
from headrace.node.descriptors import DescriptorShares
from headrace.node.housekeeping import Housekeeping
from headrace.node.loop_watch import LoopWatch
from headrace.node.metrics import NodeMetrics
from headrace.node.network import Listening, listen
from headrace.node.whole_calls import WholeCalls
from headrace.replication.group_commit import GroupCommit
from headrace.replication.replicas import Replicas
from headrace.security.authorizer import AllowAll, Authorizer

if TYPE_CHECKING:
    from headrace.node.doors import Doors

if TYPE_CHECKING:
    from headrace.groups.service import Groups

logger = logging.getLogger(__name__)

# How long a stop waits for requests under way.
ANSWERS_SECONDS = 5


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
        self.meters = RequestMeters(seconds)
        self._node_id = NodeId(config.node_id)
        self._listeners: list[Listener] = []
        self._listening: list[Listening] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._on_stop = AsyncExitStack()
        self._directory: LogDirectory | None = None
        self._controller: Controller | None = None
        self._group_commit: GroupCommit | None = None
        self._groups: Groups | None = None
        self._dispatcher: Dispatcher | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        self.metrics: NodeMetrics | None = None
        self._services: Services | None = None
        self.doors: Doors | None = None

    async def start(self) -> None:
        """Serve when this returns; on an error the directory is let go of as it is."""
        try:
            await self._start()
        except BaseException:
            # Not a stop: logs that were not opened yet would be called clean.
            self.kill()
            raise

    async def _start(self) -> None:
        config = self._config
        began = self.meters.now()
        directory = LogDirectory.open(
            self._files,
            config.data_directory,
            self._clock,
            self._randomness,
            node_id=self._node_id,
        )
        self._directory = directory
        self._on_stop.callback(directory.close)
        controller = Controller(
            config,
            self._node_id,
            directory,
            files=self._files,
            clock=self._clock,
            randomness=self._randomness,
            executor=self._executor,
        )
        self._controller = controller
        await controller.start()
        self._on_stop.push_async_callback(controller.stop)
        group_commit = self._group_commit = GroupCommit(self._executor, self.meters.now)
        self._on_stop.push_async_callback(group_commit.close)
        replicas = Replicas(
            directory,
            self._node_id,
            config,
            self._executor,
            on_dirty=group_commit.mark if config.log_flush_policy == "fsync" else None,
        )
        replicas.load(controller.image)
        # What a killed process left in the page cache counts only once it is on disk; were we
        # to serve before, the high watermark would be seen to fall.
        await group_commit.settle()
        if not directory.clean and not directory.is_new:
            logger.info(
                "recovered after an unclean stop: path=%s partitions=%d records_checked=%d"
                " duration_ms=%d",
                directory.path,
                len(replicas),
                sum(log.log_end_offset - log.recovery_point for log in directory.logs.values()),
                (self.meters.now() - began) * 1000,
            )
        controller.subscribe(replicas.follow)
        auto_creation = AutoCreation(controller)
        self._on_stop.push_async_callback(auto_creation.close)
        services = Services(
            config=replicas.config,
            node_id=self._node_id,
            controller=controller,
            replicas=replicas,
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots),
            make_groups=partial(self._make_groups, controller, replicas),
            producer_ids=ProducerIds(controller, self._node_id),
            authorizer=self._authorizer,
            auto_creation=auto_creation,
            meters=self.meters,
            record_work=RecordWork(self._executor),
            disk_reads=DiskReads(self._executor),
            clock=self._clock,
            randomness=self._randomness,
        )

        self._services = services

        in_whole = WholeCalls(self._executor)
        cleaning = Cleaning(
            replicas,
            self._compactor,
            CleanerCheckpoint(self._files, directory.path),
            self._clock,
            in_whole,
        )
        housekeeping = Housekeeping(
            replicas, cleaning, self._clock, in_whole, group_commit.mark_due
        )

        def follow_config(_: Image, __: Image, ___: Delta) -> None:
            if services.config is not replicas.config:
                services.config = replicas.config
                self.meters.set_slow(unless_negative(replicas.config.request_log_slow_ms))
                housekeeping.config_changed()

        self.meters.set_slow(unless_negative(replicas.config.request_log_slow_ms))
        controller.subscribe(follow_config)
        watch = LoopWatch(self.meters.now, also=self.meters.follow_log_level)
        self.metrics = NodeMetrics(
            replicas,
            self.meters,
            self._listeners,
            cleaning.counts,
            housekeeping.counts,
            lambda: self._groups,
            group_commit.flush_times,
            watch.lag,
        )
        dispatcher = Dispatcher(services, config.socket_request_max_bytes)
        self._dispatcher = dispatcher
        await self._listen(dispatcher)
        await self._join(controller, directory)
        self._tasks.append(asyncio.get_running_loop().create_task(housekeeping.run()))
        self._tasks.append(asyncio.get_running_loop().create_task(watch.run()))
        for listener in self._listeners:
            listener.open()
        if OFFSETS_TOPIC in controller.image.topics:
            self._tasks.append(asyncio.get_running_loop().create_task(self._wake_groups(services)))

    def _make_groups(self, controller: Controller, replicas: Replicas) -> "Groups":
        from headrace.groups.service import Groups

        groups = Groups(controller, replicas, self._clock, self._randomness, self._config)
        self._groups = groups
        self._on_stop.push_async_callback(groups.close)
        groups.start()
        return groups

    async def _wake_groups(self, services: Services) -> None:
        """There are groups: their members must be missed if they do not come back."""
        await self._executor.run(partial(import_module, "headrace.groups.service"))
        _ = services.groups

    @property
    def services(self) -> Services:
        """What handlers work with; there after `start`."""
        assert self._services is not None, "the node has not been started"
        return self._services

    async def open_doors(self) -> None:
        """Open the doors beside Kafka's that the config names; after `start`."""
        from headrace.node.doors import Doors

        sources = () if self.metrics is None else (self.metrics,)
        self.doors = Doors(self._config, self.services, sources, self._descriptors)
        await self.doors.open()

    async def _listen(self, dispatcher: Dispatcher) -> None:
        """Bind every listener; connections are served from `Listener.open` on."""
        loop = asyncio.get_running_loop()
        count = ConnectionCount(
            lambda: self.services.config,
            None if self._descriptors is None else self._descriptors.kafka,
        )
        idle_ms = unless_negative(self._config.connections_max_idle_ms)
        idle_seconds = None if idle_ms is None else idle_ms / 1000
        send_memory = SendMemory(self.services.disk_reads)
        for settings in self._config.parsed_listeners():
            listener = Listener(
                settings.name,
                dispatcher,
                count,
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
            self._listening.append(bound)
            self._listeners.append(listener)
            self.addresses[settings.name] = (settings.host, bound.port)
            self._tasks.append(loop.create_task(listener.close_idle(look_seconds(idle_seconds))))

    async def _join(self, controller: Controller, directory: LogDirectory) -> None:
        """Introduce this broker to the cluster and take the lead of its partitions anew."""
        endpoints = tuple(self._endpoint(settings) for settings in self._config.parsed_listeners())
        register = RegisterBroker(
            self._node_id,
            self._randomness.uuid(),
            endpoints,
            (directory.identity.directory_id,),
            self._config.broker_rack,
            {METADATA_VERSION: (METADATA_VERSION_LEVEL_MIN, METADATA_VERSION_LEVEL)},
        )
        # Together: decided in this order, one append, one flush.
        await asyncio.gather(
            controller.submit(register),
            controller.submit(UnfenceBroker(self._node_id)),
            controller.submit(BumpLeaderEpochs(self._node_id)),
        )

    def _endpoint(self, settings: ListenerConfig) -> Endpoint:
        host, port = self.addresses[settings.name]
        return Endpoint(
            settings.name,
            settings.advertised_host or host,
            settings.advertised_port or port,
            SECURITY_PROTOCOLS.index(settings.security_protocol),
        )

    async def stop(self) -> None:
        """Answer what is under way, flush, and leave a clean directory behind."""
        if self.doors is not None:
            await self.doors.close()
        for listening in self._listening:
            listening.close()
        self._compactor.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for listener in self._listeners:
            listener.stop_reading()
        try:
            async with asyncio.timeout(ANSWERS_SECONDS):
                await self._finish_answers()
        except TimeoutError:
            logger.warning("stopping with requests unanswered: seconds=%d", ANSWERS_SECONDS)
        for listener in self._listeners:
            listener.close()
        await self._on_stop.aclose()

    async def _finish_answers(self) -> None:
        if self._group_commit is not None:
            await self._group_commit.settle()
        if self._dispatcher is not None:
            await self._dispatcher.close()

    def kill(self) -> None:
        """Drop everything as a SIGKILL would: what is written stays, nothing else happens."""
        if self.doors is not None:
            self.doors.abort()
        for listening in self._listening:
            listening.close()
        for task in self._tasks:
            task.cancel()
        for listener in self._listeners:
            listener.abort()
        self._on_stop.pop_all()
        if self._groups is not None:
            self._groups.kill()
        if self._group_commit is not None:
            self._group_commit.kill()
        if self._controller is not None:
            self._controller.kill()
        if self._directory is not None:
            self._directory.abandon()
