"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.differential.peer import Peer
from tests.differential.scripts import fetch_request, fill, script, versions
from tests.support.batches import Batch, values

_NULL_ID = UUID(int=0)


def _topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Iterable[tuple[int, list[int]]] = (),
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def _create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


@script
def create_topics_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.CREATE_TOPICS):
        for label, topic in (
            ("plain", _topic(f"create-plain-{version}", 3)),
            ("defaults", _topic(f"create-default-{version}", -1, -1)),
            ("with configs", _topic(f"create-config-{version}", retention_ms="5000")),
            ("with an assignment", _topic(f"create-given-{version}", -1, -1, [(0, [0]), (1, [0])])),
        ):
            peer.ask(_create(topic), version, label)
        only_checked = _create(_topic(f"create-checked-{version}"), validate_only=True)
        peer.ask(only_checked, version, "only checked")
        two = _create(_topic(f"create-a-{version}"), _topic(f"create-b-{version}"))
        peer.ask(two, version, "two at once")


@script
def create_topics_that_cannot_be(peer: Peer) -> None:
    peer.create("create-exists")
    bad = {
        "exists already": _topic("create-exists"),
        "empty name": _topic(""),
        "a dot for a name": _topic("."),
        "two dots for a name": _topic(".."),
        "a space in the name": _topic("a topic"),
        "a slash in the name": _topic("a/topic"),
        "a name too long": _topic("x" * 250),
        "collides by underscore": _topic("create_exists_dot"),
        "zero partitions": _topic("create-bad", 0),
        "minus two partitions": _topic("create-bad", -2),
        "replication factor 0": _topic("create-bad", 1, 0),
        "replication factor 2": _topic("create-bad", 1, 2),
        "replication factor minus 2": _topic("create-bad", 1, -2),
        "unknown config": _topic("create-bad", no_such_config="1"),
        "bad config value": _topic("create-bad", retention_ms="soon"),
        "config value out of range": _topic("create-bad", segment_bytes="1"),
        "null config value": _topic("create-bad", retention_ms=None),
        "bad cleanup policy": _topic("create-bad", cleanup_policy="burn"),
        "partitions and an assignment": _topic("create-bad", 2, 1, [(0, [0])]),
        "assignment with a gap": _topic("create-bad", -1, -1, [(0, [0]), (2, [0])]),
        "assignment to a stranger": _topic("create-bad", -1, -1, [(0, [7])]),
        "assignment to nobody": _topic("create-bad", -1, -1, [(0, [])]),
        "assignment twice to one": _topic("create-bad", -1, -1, [(0, [0, 0])]),
        "assignment with a partition twice": _topic("create-bad", -1, -1, [(0, [0]), (0, [0])]),
    }
    peer.create("create.exists.dot")
    for version in versions(ApiKey.CREATE_TOPICS):
        for label, topic in bad.items():
            peer.ask(_create(topic), version, label)
        peer.ask(_create(), version, "no topics")
        peer.ask(_create(_topic("create-x"), _topic("create-x", 2)), version, "a topic twice")
        mixed = _create(_topic("create-exists"), _topic(f"create-mixed-{version}"))
        peer.ask(mixed, version, "one good, one bad")


@script
def delete_topics_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.DELETE_TOPICS):
        names = [f"delete-{version}-{number}" for number in range(4)]
        ids = {name: peer.create(name) for name in names}

        def by_name(*topics: str, at: int = version) -> DeleteTopicsRequest:
            states = [DeleteTopicState(name=name, topic_id=_NULL_ID) for name in topics]
            if at < 6:
                return DeleteTopicsRequest(topic_names=list(topics), timeout_ms=10_000)
            return DeleteTopicsRequest(topics=states, timeout_ms=10_000)

        peer.ask(by_name(names[0]), version, "one")
        peer.wait_until_gone(names[0])
        peer.ask(by_name(names[0]), version, "gone already")
        peer.ask(by_name(names[1], names[2]), version, "two")
        peer.ask(by_name("no-such-topic"), version, "unknown")
        peer.ask(by_name(), version, "none")
        peer.ask(by_name("a topic"), version, "not even a name")
        peer.ask(by_name(names[3], names[3]), version, "one twice")
        if version < 6:
            peer.ask(by_name(names[3]), version, "still there")
        else:
            _delete_by_id(peer, version, names[3], ids[names[3]])


def _delete_by_id(peer: Peer, version: int, name: str, topic_id: UUID) -> None:
    def request(*states: DeleteTopicState) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=list(states), timeout_ms=10_000)

    both = DeleteTopicState(name=name, topic_id=topic_id)
    peer.ask(request(both), version, "by name and id at once")
    stranger = DeleteTopicState(name=None, topic_id=UUID(int=4711))
    peer.ask(request(stranger), version, "unknown id")
    nothing = DeleteTopicState(name=None, topic_id=_NULL_ID)
    peer.ask(request(nothing), version, "neither name nor id")
    peer.ask(request(DeleteTopicState(name=None, topic_id=topic_id)), version, "by id")


@script
def create_partitions_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.CREATE_PARTITIONS):
        topic = f"grow-{version}"
        peer.create(topic)
        cases: list[tuple[str, str, int, list[list[int]] | None, bool]] = [
            ("only checked", topic, 4, None, True),
            ("to two", topic, 2, None, False),
            ("to three, assigned", topic, 3, [[0]], False),
            ("to five", topic, 5, None, False),
            ("to what it is", topic, 5, None, False),
            ("to fewer", topic, 2, None, False),
            ("to none", topic, 0, None, False),
            ("to minus one", topic, -1, None, False),
            ("unknown topic", "no-such-topic", 2, None, False),
            ("assigned to a stranger", topic, 6, [[5]], False),
            ("assigned to nobody", topic, 6, [[]], False),
            ("assigned to two", topic, 6, [[0, 1]], False),
            ("too few assignments", topic, 7, [[0]], False),
            ("too many assignments", topic, 6, [[0], [0]], False),
        ]
        for label, name, count, assigned, checked in cases:
            assignments = (
                None
                if assigned is None
                else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned]
            )
            one = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
            request = CreatePartitionsRequest(
                topics=[one], timeout_ms=10_000, validate_only=checked
            )
            peer.ask(request, version, label)
        empty = CreatePartitionsRequest(topics=[], timeout_ms=10_000, validate_only=False)
        peer.ask(empty, version, "no topics")
        twice = [
            CreatePartitionsTopic(name=topic, count=8),
            CreatePartitionsTopic(name=topic, count=9),
        ]
        doubled = CreatePartitionsRequest(topics=twice, timeout_ms=10_000, validate_only=False)
        peer.ask(doubled, version, "a topic twice")


@script
def delete_records_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.DELETE_RECORDS):
        topic = f"cut-{version}"
        topic_id = peer.create(topic)
        fill(peer, topic, topic_id, 0, *(Batch(values(3)).encode() for _ in range(4)))
        for label, name, partition, offset in (
            ("to four", topic, 0, 4),
            ("to four again", topic, 0, 4),
            ("back to two", topic, 0, 2),
            ("to zero", topic, 0, 0),
            ("beyond the end", topic, 0, 13),
            ("a negative offset", topic, 0, -7),
            ("to six", topic, 0, 6),
            ("unknown partition", topic, 5, 1),
            ("unknown topic", "no-such-topic", 0, 1),
            ("to the end", topic, 0, -1),
        ):
            one = DeleteRecordsPartition(partition_index=partition, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=[one])], timeout_ms=10_000
            )
            peer.ask(request, version, label)
            peer.ask(fetch_request(12, topic, topic_id, {0: 4}), 12, f"v{version}, {label}, read")
        nothing = DeleteRecordsRequest(topics=[], timeout_ms=10_000)
        peer.ask(nothing, version, "no topics")
        compacted = f"cut-compacted-{version}"
        compacted_id = peer.create(compacted, cleanup_policy="compact")
        fill(peer, compacted, compacted_id, 0, Batch(values(3)).encode())
        one = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=compacted, partitions=[one])], timeout_ms=10_000
        )
        peer.ask(request, version, "a compacted topic")


@script
def describe_topic_partitions(peer: Peer) -> None:
    for name, partitions in (("shown-a", 3), ("shown-b", 1), ("shown-c", 5)):
        peer.create(name, partitions)

    def request(
        *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsRequest:
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None
            if cursor is None
            else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    for label, asked in (
        ("one topic", request("shown-a")),
        ("three topics, out of order", request("shown-c", "shown-a", "shown-b")),
        ("unknown topic", request("no-such-topic")),
        ("known and unknown", request("shown-a", "no-such-topic")),
        ("two partitions at most", request("shown-a", "shown-c", limit=2)),
        ("exactly one topic's worth", request("shown-a", "shown-c", limit=3)),
        ("from a cursor", request("shown-a", "shown-c", limit=3, cursor=("shown-c", 1))),
        ("cursor at a topic not asked", request("shown-a", "shown-c", cursor=("shown-b", 0))),
        ("cursor behind the last partition", request("shown-a", cursor=("shown-a", 9))),
        ("cursor at a negative partition", request("shown-a", cursor=("shown-a", -1))),
        ("limit zero", request("shown-a", limit=0)),
        ("a bad name", request("a topic")),
        ("a topic twice", request("shown-a", "shown-a")),
    ):
        peer.ask(asked, 0, label)
