"""From one image to the next: old images stay, unchanged parts are shared."""

from uuid import UUID

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import StartupRefused
from headrace.metadata.builder import ImageBuilder
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.schemas.metadata_security import RemoveAccessControlEntryRecord
from tests.support.cpu_time import cpu_time
from tests.support.metadata import cluster, machine

MACHINE = machine()


def image_with(*topics: TopicToCreate) -> Image:
    image = cluster(0, 1)
    return MACHINE.apply(image, MACHINE.decide(image, CreateTopics(topics)).records)


def test_an_old_image_does_not_see_what_comes_after_it() -> None:
    old = image_with(TopicToCreate("t", 2, 1, configs=(("flush.ms", "1"),)))
    topic = old.topics["t"]
    MACHINE.apply(
        old,
        [
            PartitionChangeRecord(partition_id=1, topic_id=topic.id, leader=1, isr=[1]),
            ConfigRecord(
                resource_type=ConfigResourceType.TOPIC,
                resource_name="t",
                name="flush.ms",
                value="2",
            ),
            BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=0, fenced=1),
            TopicRecord(name="u", topic_id=UUID(int=5)),
        ],
    )
    assert old.topics["t"] is topic
    assert old.topic_configs("t") == {"flush.ms": "1"}
    assert old.brokers[0].active
    assert set(old.topics) == {"t"}


def test_what_did_not_change_is_shared() -> None:
    old = image_with(
        TopicToCreate("t", 2, 1, configs=(("flush.ms", "1"),)), TopicToCreate("u", 2, 1)
    )
    change = PartitionChangeRecord(partition_id=1, topic_id=old.topics["t"].id, leader=1)
    new = MACHINE.apply(old, [change])
    assert new.configs is old.configs
    assert new.brokers is old.brokers
    assert new.topics["u"] is old.topics["u"]
    assert new.topics["t"].partitions[0] is old.topics["t"].partitions[0]


def test_equal_replica_lists_are_one_object() -> None:
    partitions = image_with(TopicToCreate("t", 50, 1)).topics["t"].partitions
    assert len({id(partition.replicas) for partition in partitions}) <= 2
    assert len({id(partition.directories) for partition in partitions}) == 1


def test_a_partition_change_touches_only_what_it_names() -> None:
    image = image_with(TopicToCreate("t", assignments=((0, (0, 1)),)))
    id = image.topics["t"].id
    image = MACHINE.apply(image, [PartitionChangeRecord(partition_id=0, topic_id=id, isr=[0])])
    changed = image.topics["t"].partitions[0]
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (0, 0, 1)
    assert (changed.isr, changed.replicas) == ((0,), (0, 1))
    image = MACHINE.apply(image, [PartitionChangeRecord(partition_id=0, topic_id=id, leader=-1)])
    changed = image.topics["t"].partitions[0]
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (-1, 1, 2)


def test_every_record_moves_the_offset_by_one() -> None:
    image = cluster(0)
    assert MACHINE.apply(image, [NoOpRecord(), NoOpRecord()]).offset == image.offset + 2


def test_a_record_of_an_unknown_kind_is_refused_not_skipped() -> None:
    record = RemoveAccessControlEntryRecord(id=UUID(int=1))
    with pytest.raises(StartupRefused, match="RemoveAccessControlEntryRecord"):
        ImageBuilder(cluster(0)).apply([record])


def test_the_delta_names_what_was_created_changed_and_deleted() -> None:
    old = image_with(
        TopicToCreate("changed", 1, 1), TopicToCreate("gone", 1, 1), TopicToCreate("same", 1, 1)
    )
    records: list[MetadataRecord] = [
        PartitionChangeRecord(partition_id=0, topic_id=old.topics["changed"].id, leader=1),
        RemoveTopicRecord(topic_id=old.topics["gone"].id),
        TopicRecord(name="new", topic_id=UUID(int=5)),
        TopicRecord(name="passing", topic_id=UUID(int=6)),
        RemoveTopicRecord(topic_id=UUID(int=6)),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
    ]
    delta = Delta.of_records(records, old, MACHINE.apply(old, records))
    assert delta == Delta(topics=frozenset({"changed", "gone", "new"}), brokers=frozenset({1}))


def test_the_delta_names_configs_that_went_with_their_topic() -> None:
    old = image_with(TopicToCreate("t", 1, 1, configs=(("flush.ms", "1"),)))
    records = [RemoveTopicRecord(topic_id=old.topics["t"].id)]
    delta = Delta.of_records(records, old, MACHINE.apply(old, records))
    assert delta.configs == {ConfigResource(ConfigResourceType.TOPIC, "t")}


def test_one_change_among_ten_thousand_partitions_is_cheap() -> None:
    image = cluster(0)
    for start in range(0, 10_000, 1_000):
        topics = tuple(TopicToCreate(f"t{n}", 2, 1) for n in range(start, start + 1_000, 2))
        image = MACHINE.apply(image, MACHINE.decide(image, CreateTopics(topics)).records)
    assert sum(1 for _ in image.partitions()) == 10_000
    change = PartitionChangeRecord(partition_id=1, topic_id=image.topics["t0"].id, leader=0)
    MACHINE.apply(image, [change])
    with cpu_time() as taken:
        for _ in range(20):
            image = MACHINE.apply(image, [change])
        # Some 0.3 ms here; rebuilding all of it would take a hundred times that.
        assert taken() / 20 < 0.005
    assert image.topics["t0"].partitions[1].leader_epoch == 20


def test_what_ends_as_it_began_is_no_difference() -> None:
    old = image_with(TopicToCreate("t", 1, 1, configs=(("flush.ms", "1"),)))
    topic = ConfigResourceType.TOPIC
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=topic, resource_name="t", name="flush.ms", value="2"),
        ConfigRecord(resource_type=topic, resource_name="t", name="flush.ms", value="1"),
    ]
    new = MACHINE.apply(old, records)
    assert Delta.of_records(records, old, new) == Delta.between(old, new) == Delta()


def test_whoever_has_seen_nothing_gets_all_there_is() -> None:
    image = image_with(TopicToCreate("t", 1, 1, configs=(("flush.ms", "1"),)))
    assert Delta.between(Image(image.cluster_id), image) == Delta(
        topics=frozenset({"t"}),
        configs=frozenset({ConfigResource(ConfigResourceType.TOPIC, "t")}),
        brokers=frozenset(image.brokers),
        features=True,
    )
