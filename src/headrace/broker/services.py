"""What handlers may call: the parts of one broker, put together once by the node."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.disk_reads import DiskReads
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.metering import RequestMetrics
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.record_work import RecordWork
from headrace.broker.time_slice import TimeSlice
from headrace.controller.controller import Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.ids import NodeId
from headrace.core.runtime import Clock, Randomness
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.cache import MetadataCache
from headrace.replication.replica_manager import ReplicaManager
from headrace.security.authorizer import Authorizer

if TYPE_CHECKING:
    from headrace.groups.group_coordinator import GroupCoordinator


class Services:
    """Everything handlers may call, built once by the node."""

    __slots__ = (
        "_groups",
        "_make_groups",
        "authorizer",
        "auto_topic_creation",
        "clock",
        "config",
        "controller",
        "disk_reads",
        "fetch_sessions",
        "metadata",
        "node_id",
        "producer_ids",
        "randomness",
        "record_work",
        "replicas",
        "request_metrics",
        "time_slice",
    )

    def __init__(
        self,
        *,
        config: BrokerConfig,
        node_id: NodeId,
        metadata: MetadataCache,
        controller: Controller,
        replicas: ReplicaManager,
        fetch_sessions: FetchSessions,
        make_groups: "Callable[[], GroupCoordinator]",
        producer_ids: ProducerIds,
        authorizer: Authorizer,
        auto_topic_creation: AutoTopicCreationManager,
        request_metrics: RequestMetrics,
        record_work: RecordWork,
        disk_reads: DiskReads,
        time_slice: TimeSlice,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.metadata = metadata
        self.controller = controller
        self.replicas = replicas
        self.fetch_sessions = fetch_sessions
        self._make_groups = make_groups
        self._groups: GroupCoordinator | None = None
        self.producer_ids = producer_ids
        self.authorizer = authorizer
        self.auto_topic_creation = auto_topic_creation
        self.request_metrics = request_metrics
        self.record_work = record_work
        self.disk_reads = disk_reads
        self.time_slice = time_slice
        self.clock = clock
        self.randomness = randomness

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator, made when it is first asked for: a broker without groups never
        loads their half of the protocol."""
        groups = self._groups
        if groups is None:
            groups = self._groups = self._make_groups()
        return groups
