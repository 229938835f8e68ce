"""One look at a cluster over the Kafka protocol."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.cli.sizes import bytes_on_disk
from headrace.cli.top.rates import ClusterSample, GroupSample, TopicSample
from headrace.client import EARLIEST, LATEST
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition

if TYPE_CHECKING:
    from headrace.cli.top.scraper import Scraper
    from headrace.client import Client

# Beyond this, the lag of groups is not asked for: there is no room to show it either.
GROUPS_MAX = 500


def sample_cluster(client: "Client", scraper: "Scraper") -> ClusterSample:
    """Ask for everything that is shown; raises where no broker answers."""
    cluster = client.admin.describe_cluster()
    # The ends of logs, which rates are made from, as near as possible to the clock.
    topics, at = _steady_topics(client), time.monotonic()
    return ClusterSample(
        at=at,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        cluster_id=cluster.cluster_id,
        brokers=len(cluster.brokers),
        topics=topics,
        groups=_groups(client),
        metrics=scraper.scrape(cluster.cluster_id),
    )


def _steady_topics(client: "Client") -> dict[str, TopicSample]:
    """Once more where a topic goes while we look."""
    try:
        return _topics(client)
    except HeadraceError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return _topics(client)


def _topics(client: "Client") -> dict[str, TopicSample]:
    described = client.admin.list_topics()
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in described
        for each in topic.partitions
    ]
    starts = client.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = client.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    sizes = _sizes(client)
    samples = {}
    for topic in described:
        own = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        end = sum(ends[each].offset for each in own)
        start = sum(starts[each].offset for each in own)
        samples[topic.name] = TopicSample(len(own), end - start, end, sizes.get(topic.name))
    return samples


def _sizes(client: "Client") -> dict[str, int]:
    """Bytes on disk by topic; nothing where one may not ask."""
    sizes: dict[str, int] = {}
    for partition, held in bytes_on_disk(client).items():
        sizes[partition.topic] = sizes.get(partition.topic, 0) + held
    return sizes


def _groups(client: "Client") -> dict[str, GroupSample] | None:
    """State and lag of each group; None where groups are not to be had."""
    try:
        groups = client.admin.list_groups()
        names = [group.group_id for group in groups[:GROUPS_MAX]]
        lags = client.admin.group_lags(names, members=False) if names else {}
    except HeadraceError:
        return None
    samples = {}
    for group in groups:
        known = [each.lag for each in lags.get(group.group_id, ()) if each.lag is not None]
        samples[group.group_id] = GroupSample(group.state, sum(known) if known else None)
    return samples
