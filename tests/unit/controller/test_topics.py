"""Creating and deleting topics: what is decided, and Kafka's codes and words for what is not."""

from uuid import UUID

import pytest

from headrace.controller.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    PartitionsCreation,
    TopicCreation,
    TopicDeletion,
    TopicToCreate,
    TopicToDelete,
)
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID
from headrace.metadata.image import Image
from tests.support.metadata import DIRECTORY, cluster, machine

MACHINE = machine(BrokerConfig.from_static({"num.partitions": "3"}))


def create(image: Image, *topics: TopicToCreate) -> tuple[Image, tuple[TopicCreation, ...]]:
    decision = MACHINE.decide(image, CreateTopics(topics))
    return MACHINE.apply(image, decision.records), decision.reply


def with_topics(image: Image, *names: str, partitions: int = 1) -> Image:
    image, answers = create(image, *(TopicToCreate(name, partitions, 1) for name in names))
    assert all(answer.error is ErrorCode.NONE for answer in answers)
    return image


def refusal(image: Image, topic: TopicToCreate) -> tuple[ErrorCode, str | None]:
    after, (answer,) = create(image, topic)
    assert after == image, "a refused topic changed something"
    assert answer.name == topic.name
    return answer.error, answer.message


def test_a_new_topic_has_its_partitions_led_and_in_sync() -> None:
    image, (answer,) = create(cluster(0), TopicToCreate("t", 2, 1))
    topic = image.topics["t"]
    assert topic is image.topics_by_id[topic.id]
    assert answer == TopicCreation("t", ErrorCode.NONE, None, topic.id, 2, 1)
    for partition in topic.partitions:
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (0, 0, 0)
        assert partition.replicas == partition.isr == (0,)
        assert partition.directories == (DIRECTORY,)


def test_minus_one_takes_the_configured_defaults() -> None:
    _, (answer,) = create(cluster(0), TopicToCreate("t"))
    assert (answer.num_partitions, answer.replication_factor) == (3, 1)


def test_an_explicit_assignment_is_taken_as_it_is() -> None:
    image, (answer,) = create(
        cluster(0, 1, 2), TopicToCreate("t", assignments=((1, (2, 0)), (0, (1, 2))))
    )
    assert (answer.num_partitions, answer.replication_factor) == (2, 2)
    assert [p.replicas for p in image.topics["t"].partitions] == [(1, 2), (2, 0)]
    assert [p.leader for p in image.topics["t"].partitions] == [1, 2]


def test_leaders_go_round_the_brokers() -> None:
    image, _ = create(cluster(0, 1, 2), TopicToCreate("t", 6, 2))
    leaders = [p.leader for p in image.topics["t"].partitions]
    assert sorted(leaders) == [0, 0, 1, 1, 2, 2]
    assert all(len(set(p.replicas)) == 2 for p in image.topics["t"].partitions)


def test_a_fenced_broker_neither_leads_nor_counts_as_in_sync() -> None:
    image, _ = create(cluster(0, 1, fenced=(1,)), TopicToCreate("t", 4, 2))
    assert {p.leader for p in image.topics["t"].partitions} == {0}
    assert {p.isr for p in image.topics["t"].partitions} == {(0,)}


def test_every_topic_gets_an_id_of_its_own_and_a_recreated_one_a_new_id() -> None:
    image = with_topics(cluster(0), "a", "b")
    first = image.topics["a"].id
    assert first != image.topics["b"].id
    image = MACHINE.apply(image, MACHINE.decide(image, DeleteTopics((TopicToDelete("a"),))).records)
    assert with_topics(image, "a").topics["a"].id != first


def test_configs_are_stored_and_a_key_given_twice_counts_once() -> None:
    topic = TopicToCreate("t", 1, 1, configs=(("retention.ms", "1"), ("retention.ms", "2")))
    image, (answer,) = create(cluster(0), topic)
    assert image.topic_configs("t") == answer.configs == {"retention.ms": "2"}


def test_validate_only_answers_in_full_and_changes_nothing() -> None:
    topic = TopicToCreate("t", 2, 1, configs=(("retention.ms", "1"),))
    command = CreateTopics((topic,), validate_only=True)
    decision = MACHINE.decide(cluster(0), command)
    assert decision.reply[0].num_partitions == 2
    assert decision.reply[0].configs == {"retention.ms": "1"}
    assert decision.reply[0].topic_id != NO_TOPIC_ID
    assert not decision.records


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_'"),
    ],
)
def test_an_illegal_name_is_refused(name: str, reason: str) -> None:
    error, message = refusal(cluster(0), TopicToCreate(name))
    assert error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert message is not None
    assert message.startswith(f"Topic name is invalid: {reason}")


def test_the_longest_legal_name_is_fine() -> None:
    with_topics(cluster(0), "x" * 249, "a.b-c_D9")


def test_an_existing_topic_is_not_created_again() -> None:
    expected = (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists.")
    assert refusal(with_topics(cluster(0), "a.b"), TopicToCreate("a.b")) == expected


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    image = with_topics(cluster(0), "a_b.c")
    assert refusal(image, TopicToCreate("a.b_c")) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a.b_c' collides with existing topic: a_b.c",
    )
    image = MACHINE.apply(
        image, MACHINE.decide(image, DeleteTopics((TopicToDelete("a_b.c"),))).records
    )
    with_topics(image, "a.b_c")


def test_a_collision_is_remembered_while_one_of_two_remains() -> None:
    image = with_topics(cluster(0), "a.b", "a_b")  # Kafka looks only at topics that exist
    image = MACHINE.apply(
        image, MACHINE.decide(image, DeleteTopics((TopicToDelete("a.b"),))).records
    )
    assert refusal(image, TopicToCreate("a.b"))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (
            TopicToCreate("t", 1, 2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
            "cannot be reached because only 1 broker(s) are registered or some brokers have all "
            "their log directories cordoned.",
        ),
        (
            TopicToCreate("t", 0, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            TopicToCreate("t", -2, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            TopicToCreate("t", assignments=((0, (0,)), (0, (0,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            TopicToCreate("t", assignments=((0, (0,)), (2, (0,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            TopicToCreate("t", assignments=((0, ()),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            TopicToCreate("t", assignments=((0, (5,)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 5, but no such broker is registered.",
        ),
        (
            TopicToCreate("t", assignments=((0, (0, 0)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 0 more than once.",
        ),
        (
            TopicToCreate("t", 1, -1, assignments=((0, (0,)),)),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            TopicToCreate("t", 1, 1, assignments=((0, (0,)),)),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set "
            "to -1.",
        ),
        (
            TopicToCreate("t", 1, 1, configs=(("foo", "1"),)),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: foo",
        ),
        (
            TopicToCreate("t", 1, 1, configs=(("retention.ms", None),)),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            TopicToCreate("t", 1, 1, configs=(("retention.ms", "x"),)),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            TopicToCreate("t", 10_001, 1),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            TopicToCreate("t", 10_000, 1),
            ErrorCode.POLICY_VIOLATION,
            "Unable to perform excessively large batch operation.",
        ),
    ],
)
def test_a_bad_topic_is_refused_in_the_words_of_kafka(
    topic: TopicToCreate, error: ErrorCode, message: str
) -> None:
    assert refusal(cluster(0), topic) == (error, message)


def test_replica_lists_of_different_lengths_are_refused() -> None:
    topic = TopicToCreate("t", assignments=((0, (0, 1)), (1, (0,))))
    assert refusal(cluster(0, 1), topic) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes a partition with 1 replica(s), but this is not "
        "consistent with previous partitions, which have 2 replica(s).",
    )


def test_nothing_is_placed_while_every_broker_is_fenced() -> None:
    image = cluster(0, fenced=(0,))
    assert refusal(image, TopicToCreate("t", 1, 1)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
    )
    assert refusal(image, TopicToCreate("t", assignments=((0, (0,)),))) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "All brokers specified in the manual partition assignment for partition 0 are fenced or "
        "in controlled shutdown.",
    )


def test_one_bad_topic_leaves_its_neighbours_alone() -> None:
    image, answers = create(
        cluster(0),
        TopicToCreate("twice", 1, 1),
        TopicToCreate("good", 1, 1),
        TopicToCreate("bad", 0, 1),
        TopicToCreate("twice", 1, 1),
        TopicToCreate("__cluster_metadata"),
    )
    assert set(image.topics) == {"good"}
    assert [(answer.name, answer.error, answer.message) for answer in answers[2:]] == [
        ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (
            "__cluster_metadata",
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ]
    assert [answer.name for answer in answers[:2]] == ["good", "bad"]


def delete(image: Image, *topics: TopicToDelete) -> tuple[Image, tuple[TopicDeletion, ...]]:
    decision = MACHINE.decide(image, DeleteTopics(topics))
    return MACHINE.apply(image, decision.records), decision.reply


def test_a_topic_goes_by_name_or_by_id_with_its_configs() -> None:
    image = with_topics(cluster(0), "a", "b")
    image, _ = create(image, TopicToCreate("c", 1, 1, configs=(("retention.ms", "1"),)))
    a, c = image.topics["a"].id, image.topics["c"].id
    image, answers = delete(image, TopicToDelete("a"), TopicToDelete(topic_id=c))
    assert set(image.topics) == {"b"}
    assert len(image.topics_by_id) == 1
    assert not image.configs
    assert set(answers) == {TopicDeletion("a", a), TopicDeletion("c", c)}


UNKNOWN_ID = UUID(int=99)


@pytest.mark.parametrize(
    ("topics", "answer"),
    [
        (
            (TopicToDelete("nope"),),
            TopicDeletion(
                "nope",
                NO_TOPIC_ID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            ),
        ),
        (
            (TopicToDelete(topic_id=UNKNOWN_ID),),
            TopicDeletion(
                None,
                UNKNOWN_ID,
                ErrorCode.UNKNOWN_TOPIC_ID,
                "This server does not host this topic ID.",
            ),
        ),
        (
            (TopicToDelete(),),
            TopicDeletion(
                None,
                NO_TOPIC_ID,
                ErrorCode.INVALID_REQUEST,
                "Neither topic name nor id were specified.",
            ),
        ),
        (
            (TopicToDelete("a", UNKNOWN_ID),),
            TopicDeletion(
                "a",
                UNKNOWN_ID,
                ErrorCode.INVALID_REQUEST,
                "You may not specify both topic name and topic id.",
            ),
        ),
        (
            (TopicToDelete("a"), TopicToDelete("a")),
            TopicDeletion("a", NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ),
        (
            (TopicToDelete(topic_id=UNKNOWN_ID), TopicToDelete(topic_id=UNKNOWN_ID)),
            TopicDeletion(None, UNKNOWN_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
        ),
    ],
)
def test_a_bad_deletion_is_refused_in_the_words_of_kafka(
    topics: tuple[TopicToDelete, ...], answer: TopicDeletion
) -> None:
    image = with_topics(cluster(0), "a")
    after, answers = delete(image, *topics)
    assert answers == (answer,)
    assert after == image


def test_no_topic_is_deleted_where_the_configuration_forbids_it() -> None:
    image = with_topics(cluster(0), "a")
    forbidding = machine(BrokerConfig.from_static({"delete.topic.enable": "false"}))
    with pytest.raises(ApiError) as refused:
        forbidding.decide(image, DeleteTopics((TopicToDelete("a"),)))
    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_a_topic_named_both_by_name_and_id_is_not_deleted() -> None:
    image = with_topics(cluster(0), "a")
    id = image.topics["a"].id
    after, answers = delete(image, TopicToDelete("a"), TopicToDelete(topic_id=id))
    message = "The provided topic name maps to an ID that was already supplied."
    assert answers == (TopicDeletion("a", id, ErrorCode.INVALID_REQUEST, message),)
    assert after == image


def add(image: Image, *topics: NewPartitions) -> tuple[Image, tuple[PartitionsCreation, ...]]:
    decision = MACHINE.decide(image, CreatePartitions(topics))
    return MACHINE.apply(image, decision.records), decision.reply


def test_partitions_are_added_and_the_old_ones_stay_as_they_are() -> None:
    image = with_topics(cluster(0, 1), "t", partitions=2)
    after, answers = add(image, NewPartitions("t", 4, ((1,), (0,))))
    assert answers == (PartitionsCreation("t"),)
    assert after.topics["t"].partitions[:2] == image.topics["t"].partitions
    assert [p.replicas for p in after.topics["t"].partitions[2:]] == [(1,), (0,)]
    assert len(add(after, NewPartitions("t", 9))[0].topics["t"].partitions) == 9


def test_validating_more_partitions_adds_none() -> None:
    image = with_topics(cluster(0), "t")
    decision = MACHINE.decide(image, CreatePartitions((NewPartitions("t", 4),), True))
    assert decision.reply == (PartitionsCreation("t"),)
    assert not decision.records


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (
            NewPartitions("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "Topic already has 2 partition(s).",
        ),
        (
            NewPartitions("t", -1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); -1 would not be an increase.",
        ),
        (NewPartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            NewPartitions("t", 4, ((0,),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            NewPartitions("t", 3, ((7,),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            NewPartitions("t", 2**31 - 1),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_bad_partition_counts_are_refused_in_the_words_of_kafka(
    wanted: NewPartitions, error: ErrorCode, message: str | None
) -> None:
    image = with_topics(cluster(0), "t", partitions=2)
    after, answers = add(image, wanted)
    assert answers == (PartitionsCreation(wanted.name, error, message),)
    assert after == image


def test_a_topic_raised_twice_in_one_request_is_refused_once() -> None:
    image = with_topics(cluster(0), "t", "u")
    after, answers = add(image, NewPartitions("t", 3), NewPartitions("u", 2), NewPartitions("t", 4))
    assert answers == (
        PartitionsCreation("t", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        PartitionsCreation("u"),
    )
    assert len(after.topics["t"].partitions) == 1
    assert len(after.topics["u"].partitions) == 2
