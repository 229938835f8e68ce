"""What this node tells about itself when asked; docs/observability.md lists it.

Most numbers are read off where they live anyway: ends of logs, sizes, open connections. Only
what leaves no trace is counted as it happens, see `core/metrics.py`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import headrace
from headrace.broker.listener import Listener
from headrace.broker.metering import RequestMetrics
from headrace.core.errors import ErrorCode
from headrace.core.metrics import Family, Histogram, Metric, Sample
from headrace.metadata.names import INTERNAL_TOPICS
from headrace.node.log_cleaner import LogCleanerCounts
from headrace.node.log_maintenance import LogMaintenanceCounts
from headrace.replication.partition import Partition
from headrace.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from headrace.groups.shard_state import GroupCounts

# Beyond this, partitions are left out of what is listed per partition (and said to be).
PARTITIONS_MAX: Final = 10_000

BUILD_INFO: Final = Metric(
    "headrace_build_info", "gauge", "Always 1; which program this is.", ("version", "python")
)
CLUSTER_INFO: Final = Metric(
    "headrace_cluster_info", "gauge", "Always 1; who this broker is.", ("cluster_id", "node_id")
)
REQUEST_SECONDS: Final = Metric(
    "headrace_request_seconds",
    "histogram",
    "From a whole request at hand to its answer, without the wait of a long poll.",
    ("api",),
)
REQUEST_ERRORS: Final = Metric(
    "headrace_request_errors_total",
    "counter",
    "Error codes in answers; an answer about several partitions may hold several.",
    ("api", "error"),
)
SLOW_REQUESTS: Final = Metric(
    "headrace_slow_requests_total", "counter", "Requests that took longer than request.log.slow.ms."
)
REQUESTS_IN_FLIGHT: Final = Metric(
    "headrace_requests_in_flight", "gauge", "Requests not answered yet.", ("listener",)
)
REQUESTS_WAITING: Final = Metric(
    "headrace_requests_waiting", "gauge", "Of these, fetches that wait for records.", ("listener",)
)
CONNECTIONS: Final = Metric(
    "headrace_connections", "gauge", "Open connections of clients.", ("listener",)
)
CONNECTIONS_THROTTLED: Final = Metric(
    "headrace_connections_throttled",
    "gauge",
    "Connections not read from, because too much of theirs is under way or unread.",
    ("listener",),
)
CONNECTIONS_ACCEPTED: Final = Metric(
    "headrace_connections_accepted_total", "counter", "Connections accepted.", ("listener",)
)
CONNECTIONS_REFUSED: Final = Metric(
    "headrace_connections_refused_total",
    "counter",
    "Connections refused by a limit on their number.",
    ("listener",),
)
TOPICS: Final = Metric("headrace_topics", "gauge", "Topics with a partition here.")
PARTITIONS: Final = Metric("headrace_partitions", "gauge", "Partitions on this broker.")
PARTITIONS_OFFLINE: Final = Metric(
    "headrace_partitions_offline", "gauge", "Partitions whose log could not be opened."
)
MESSAGES_IN: Final = Metric(
    "headrace_topic_messages_in_total",
    "counter",
    "Records appended since the start.",
    ("topic",),
)
BYTES_IN: Final = Metric(
    "headrace_topic_bytes_in_total",
    "counter",
    "Bytes of record batches appended since the start.",
    ("topic",),
)
MESSAGES_OUT: Final = Metric(
    "headrace_topic_messages_out_total",
    "counter",
    "Offsets covered by fetch answers since the start; on compacted topics gaps count too.",
    ("topic",),
)
BYTES_OUT: Final = Metric(
    "headrace_topic_bytes_out_total",
    "counter",
    "Bytes of record batches in fetch answers since the start.",
    ("topic",),
)
LOG_START: Final = Metric(
    "headrace_partition_log_start_offset", "gauge", "First offset kept.", ("topic", "partition")
)
LOG_END: Final = Metric(
    "headrace_partition_log_end_offset", "gauge", "Next offset to be given.", ("topic", "partition")
)
HIGH_WATERMARK: Final = Metric(
    "headrace_partition_high_watermark", "gauge", "Readers see below it.", ("topic", "partition")
)
SIZE: Final = Metric(
    "headrace_partition_size_bytes", "gauge", "Bytes of its data files.", ("topic", "partition")
)
SEGMENTS: Final = Metric(
    "headrace_partition_segments", "gauge", "Segments it consists of.", ("topic", "partition")
)
PARTITIONS_LEFT_OUT: Final = Metric(
    "headrace_partitions_left_out",
    "gauge",
    f"Partitions beyond the first {PARTITIONS_MAX}, not listed one by one.",
)
DISK_BYTES: Final = Metric(
    "headrace_data_directory_bytes", "gauge", "Size of the file system that holds the data."
)
DISK_FREE: Final = Metric(
    "headrace_data_directory_free_bytes", "gauge", "Of these, bytes that can still be written."
)
FLUSH_SECONDS: Final = Metric(
    "headrace_flush_seconds",
    "histogram",
    "Flushes of one partition each: what producers with acks=all wait for.",
)
COMPACTIONS: Final = Metric("headrace_compactions_total", "counter", "Logs compacted.")
COMPACTIONS_FAILED: Final = Metric(
    "headrace_compactions_failed_total", "counter", "Compactions that failed."
)
COMPACTED_RECORDS: Final = Metric(
    "headrace_compaction_removed_records_total", "counter", "Records that compaction removed."
)
COMPACTED_BYTES: Final = Metric(
    "headrace_compaction_removed_bytes_total", "counter", "Bytes that compaction removed."
)
SEGMENTS_DELETED: Final = Metric(
    "headrace_retention_deleted_segments_total", "counter", "Segments that retention deleted."
)
MAINTENANCE_FAILURES: Final = Metric(
    "headrace_log_maintenance_failures_total",
    "counter",
    "Checkpoints, retentions and other tasks that failed and will be tried again.",
)
MAINTENANCE_FAILURES_BY_OLD_NAME: Final = Metric(
    "headrace_housekeeping_failures_total",
    "counter",
    "Deprecated, goes with the next release: headrace_log_maintenance_failures_total.",
)
REBALANCES: Final = Metric(
    "headrace_group_rebalances_total",
    "counter",
    "Generations of classic groups completed, and epochs of KIP-848 groups begun.",
)
COMMITS: Final = Metric(
    "headrace_group_offset_commits_total", "counter", "Offsets of partitions committed by groups."
)
EXPIRED_OFFSETS: Final = Metric(
    "headrace_group_offsets_expired_total", "counter", "Committed offsets removed for their age."
)
LOOP_LAG: Final = Metric(
    "headrace_event_loop_lag_seconds",
    "histogram",
    "How much later than asked the event loop woke up; sampled twice a second.",
)


class NodeMetrics:
    """A source of metrics: everything of one node but its groups and its process."""

    def __init__(
        self,
        replicas: ReplicaManager,
        request_metrics: RequestMetrics,
        listeners: Sequence[Listener],
        cleaner: LogCleanerCounts,
        maintenance: LogMaintenanceCounts,
        groups: "Callable[[], GroupCounts | None]",
        flush_times: Histogram,
        loop_lag: Histogram,
    ) -> None:
        self._replicas = replicas
        self._request_metrics = request_metrics
        self._listeners = listeners
        self._cleaner = cleaner
        self._maintenance = maintenance
        # None until somebody has asked for a group.
        self._groups = groups
        self._flush_times = flush_times
        self._loop_lag = loop_lag

    def collect(self) -> Iterator[Family]:
        """Everything as it is now; what is listed per partition is read while it is written."""
        yield from self._identity()
        yield from self._requests()
        yield from self._connections()
        partitions = list(self._replicas)
        listed = partitions
        if not self._replicas.config.metrics_internal_topics:
            listed = [each for each in partitions if each.id.topic not in INTERNAL_TOPICS]
        yield TOPICS.value(len({each.id.topic for each in partitions}))
        yield PARTITIONS.value(len(partitions))
        yield from _topics(listed)
        yield from _partitions(listed)
        yield from self._storage()
        groups = self._groups()
        yield REBALANCES.value(groups.rebalances if groups else 0)
        yield COMMITS.value(groups.commits if groups else 0)
        yield EXPIRED_OFFSETS.value(groups.expired_offsets if groups else 0)
        yield LOOP_LAG.value(self._loop_lag)

    def _identity(self) -> Iterator[Family]:
        python = ".".join(map(str, sys.version_info[:3]))
        yield BUILD_INFO.of(((headrace.__version__, python), 1))
        identity = self._replicas.directory.meta_properties
        yield CLUSTER_INFO.of(((identity.cluster_id, str(self._replicas.config.node_id)), 1))

    def _requests(self) -> Iterator[Family]:
        meters = sorted(self._request_metrics, key=lambda meter: meter.api)
        yield REQUEST_SECONDS.each(((meter.api,), meter.times) for meter in meters)
        yield REQUEST_ERRORS.each(
            ((meter.api, _error_name(code)), count)
            for meter in meters
            for code, count in sorted(meter.errors.items())
        )
        yield SLOW_REQUESTS.value(self._request_metrics.slow_requests)

    def _connections(self) -> Iterator[Family]:
        listeners = self._listeners
        yield CONNECTIONS.each(((each.name,), len(each.connections)) for each in listeners)
        yield CONNECTIONS_ACCEPTED.each(((each.name,), each.accepted) for each in listeners)
        yield CONNECTIONS_REFUSED.each(((each.name,), each.refused) for each in listeners)
        yield CONNECTIONS_THROTTLED.each(
            ((each.name,), sum(c.is_paused for c in each.connections)) for each in listeners
        )
        yield REQUESTS_IN_FLIGHT.each(
            ((each.name,), sum(c.unanswered for c in each.connections)) for each in listeners
        )
        yield REQUESTS_WAITING.each(
            ((each.name,), sum(len(c.delayed_operations) for c in each.connections))
            for each in listeners
        )

    def _storage(self) -> Iterator[Family]:
        total, free = self._replicas.directory.space()
        yield DISK_BYTES.value(total)
        yield DISK_FREE.value(free)
        yield PARTITIONS_OFFLINE.value(len(self._replicas.offline))
        yield FLUSH_SECONDS.value(self._flush_times)
        yield COMPACTIONS.value(self._cleaner.compactions)
        yield COMPACTIONS_FAILED.value(self._cleaner.failures)
        yield COMPACTED_RECORDS.value(self._cleaner.removed_records)
        yield COMPACTED_BYTES.value(self._cleaner.removed_bytes)
        yield SEGMENTS_DELETED.value(self._maintenance.deleted_segments)
        yield MAINTENANCE_FAILURES.value(self._maintenance.failures)
        yield MAINTENANCE_FAILURES_BY_OLD_NAME.value(self._maintenance.failures)


def _topics(partitions: Sequence[Partition]) -> Iterator[Family]:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        sums = by_topic.setdefault(partition.id.topic, [0, 0, 0, 0])
        sums[0] += partition.log.log_end_offset - partition.first_new_offset
        sums[1] += partition.appended_bytes
        sums[2] += partition.fetched_messages
        sums[3] += partition.fetched_bytes
    for column, metric in enumerate((MESSAGES_IN, BYTES_IN, MESSAGES_OUT, BYTES_OUT)):
        yield metric.each(_column(by_topic, column))


def _column(by_topic: dict[str, list[int]], column: int) -> Iterable[Sample]:
    return (((topic,), sums[column]) for topic, sums in by_topic.items())


def _partitions(partitions: Sequence[Partition]) -> Iterator[Family]:
    yield PARTITIONS_LEFT_OUT.value(max(0, len(partitions) - PARTITIONS_MAX))
    # Made while they are written, so that nothing takes long at once.
    listed = partitions[:PARTITIONS_MAX]
    yield LOG_START.each((_labels(each), each.log.log_start_offset) for each in listed)
    yield LOG_END.each((_labels(each), each.log.log_end_offset) for each in listed)
    yield HIGH_WATERMARK.each((_labels(each), each.high_watermark) for each in listed)
    yield SIZE.each((_labels(each), sum(s.size for s in each.log.segments)) for each in listed)
    yield SEGMENTS.each((_labels(each), len(each.log.segments)) for each in listed)


def _labels(partition: Partition) -> tuple[str, str]:
    topic, number = partition.id
    return topic, str(number)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
