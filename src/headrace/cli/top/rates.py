"""Figures per second, from two looks at a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TOPIC_RATES = ("messages_in", "bytes_in", "messages_out", "bytes_out")


@dataclass(frozen=True, slots=True)
class TopicSample:
    """One topic: how much it holds, and how far its partitions have come."""

    partitions: int
    records: int
    ends: int
    """Sum of the ends of its partitions."""
    size: int | None


@dataclass(frozen=True, slots=True)
class GroupSample:
    state: str
    lag: int | None


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """What only metrics tell; totals since the start of the broker, and when they were told."""

    at: float
    topics: Mapping[str, Mapping[str, float]]
    """By topic: what `TOPIC_RATES` names."""
    requests: float
    errors: float
    connections: int


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """What was found at one moment, by a clock in seconds."""

    at: float
    time: str
    cluster_id: str
    brokers: int
    topics: Mapping[str, TopicSample]
    groups: Mapping[str, GroupSample] | None
    metrics: MetricsSample | None


@dataclass(slots=True)
class TopicRow:
    """Rates are per second; None is what cannot be known."""

    topic: str
    partitions: int
    records: int
    size_bytes: int | None
    messages_in: float
    bytes_in: float | None
    messages_out: float | None
    bytes_out: float | None


@dataclass(slots=True)
class GroupRow:
    group: str
    state: str
    lag: int | None
    lag_change: float | None
    """Records per second; negative while the group catches up."""


@dataclass(slots=True)
class TopView:
    """What is shown: rates per second, and how things stand."""

    time: str
    cluster_id: str
    brokers: int
    messages_in: float
    bytes_in: float | None
    messages_out: float | None
    bytes_out: float | None
    requests: float | None
    errors: float | None
    connections: int | None
    topics: list[TopicRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    trouble: str = ""
    """Why this is not fresh, if it is not."""


def compare(before: ClusterSample, now: ClusterSample) -> TopView:
    """What has happened between two looks; busy topics and groups that are behind come first."""
    seconds = now.at - before.at
    topics = [_topic_row(name, before, now, seconds) for name in now.topics]
    topics.sort(key=lambda row: (-row.messages_in, -(row.messages_out or 0), row.topic))
    groups = [_group_row(name, before, now, seconds) for name in now.groups or ()]
    groups.sort(key=lambda row: (-(row.lag or 0), row.group))
    requests = errors = None
    if before.metrics is not None and now.metrics is not None:
        between = now.metrics.at - before.metrics.at
        requests = _rate(before.metrics.requests, now.metrics.requests, between)
        errors = _rate(before.metrics.errors, now.metrics.errors, between)
    return TopView(
        time=now.time,
        cluster_id=now.cluster_id,
        brokers=now.brokers,
        messages_in=sum(row.messages_in for row in topics),
        bytes_in=_sum([row.bytes_in for row in topics]),
        messages_out=_sum([row.messages_out for row in topics]),
        bytes_out=_sum([row.bytes_out for row in topics]),
        requests=requests,
        errors=errors,
        connections=None if now.metrics is None else now.metrics.connections,
        topics=topics,
        groups=groups,
    )


def _topic_row(name: str, before: ClusterSample, now: ClusterSample, seconds: float) -> TopicRow:
    new = now.topics[name]
    old = before.topics.get(name)
    rates: dict[str, float | None] = dict.fromkeys(TOPIC_RATES)
    if before.metrics is not None and now.metrics is not None:
        between = now.metrics.at - before.metrics.at
        first, second = before.metrics.topics.get(name, {}), now.metrics.topics.get(name)
        if second is not None:
            rates = {each: _rate(first.get(each, 0), second[each], between) for each in TOPIC_RATES}
    elif old is not None and old.size is not None and new.size is not None:
        # Without metrics, what the files have grown by is the nearest there is.
        rates["bytes_in"] = _rate(old.size, new.size, seconds)
    return TopicRow(
        topic=name,
        partitions=new.partitions,
        records=new.records,
        size_bytes=new.size,
        # Ends of logs are known of every broker of a cluster, metrics only of one.
        messages_in=_rate(0 if old is None else old.ends, new.ends, seconds),
        bytes_in=rates["bytes_in"],
        messages_out=rates["messages_out"],
        bytes_out=rates["bytes_out"],
    )


def _group_row(name: str, before: ClusterSample, now: ClusterSample, seconds: float) -> GroupRow:
    assert now.groups is not None
    new = now.groups[name]
    old = (before.groups or {}).get(name)
    change = None
    if old is not None and old.lag is not None and new.lag is not None:
        change = (new.lag - old.lag) / seconds
    return GroupRow(name, new.state, new.lag, change)


def _rate(old: float, new: float, seconds: float) -> float:
    """Never negative: a total that has shrunk belongs to a broker or topic made anew."""
    return max(0.0, new - old) / seconds


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None
