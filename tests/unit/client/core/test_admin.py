"""Admin flows, answered by hand."""

import uuid

import pytest

from headrace.client import (
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from headrace.client.core import admin_state, admin_topics
from headrace.client.core.lookups import MissingTopic
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest
from tests.support.client_core import TOPIC_ID, ManualClock, OperationDriver, make_session, metadata


def created(*codes: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name="t", topic_id=TOPIC_ID, error_code=code, num_partitions=2)
            for code in codes
        ]
    )


def test_creating_waits_until_brokers_tell_of_the_topic() -> None:
    clock = ManualClock()
    operation = admin_topics.create_topics(
        make_session(clock), [NewTopic("t", 2)], validate_only=False
    )
    play = OperationDriver(operation)
    play.respond(created(0))
    play.respond(metadata(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    play.pass_time(clock)
    play.respond(metadata(2, leader=-1))
    play.pass_time(clock)
    play.respond(metadata(2))
    assert play.result == {"t": TOPIC_ID}


def test_a_topic_that_stays_unseen_is_created_all_the_same() -> None:
    clock = ManualClock()
    operation = admin_topics.create_topics(
        make_session(clock), [NewTopic("t")], validate_only=False
    )
    play = OperationDriver(operation)
    play.respond(created(0))
    while not play.is_done:
        play.respond(metadata(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        play.pass_time(clock)
    assert play.result == {"t": TOPIC_ID}
    assert clock.ms < 2000


def test_only_checking_looks_at_nothing() -> None:
    play = OperationDriver(
        admin_topics.create_topics(make_session(), [NewTopic("t")], validate_only=True)
    )
    play.respond(created(0))
    assert play.is_done


def test_a_refused_topic_is_named_with_the_brokers_reason() -> None:
    play = OperationDriver(
        admin_topics.create_topics(make_session(), [NewTopic("t")], validate_only=False)
    )
    with pytest.raises(ApiError, match="create topic 't': topic already exists") as refusal:
        play.respond(created(ErrorCode.TOPIC_ALREADY_EXISTS))
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_assignments_take_the_place_of_numbers() -> None:
    topic = NewTopic("t", 5, 3, {"a": "b"}, {0: [1, 2], 1: [2, 1]})
    play = OperationDriver(admin_topics.create_topics(make_session(), [topic], validate_only=False))
    request = play.send().request
    assert isinstance(request, CreateTopicsRequest)
    (wanted,) = request.topics
    assert (wanted.num_partitions, wanted.replication_factor) == (-1, -1)
    assert [a.broker_ids for a in wanted.assignments] == [[1, 2], [2, 1]]
    assert (wanted.configs[0].name, wanted.configs[0].value) == ("a", "b")


def test_deleting_by_id_needs_a_version_that_has_ids() -> None:
    ids: list[str | uuid.UUID] = ["t", TOPIC_ID]
    assert OperationDriver(admin_topics.delete_topics(make_session(), ids)).send().version_min == 6
    play = OperationDriver(admin_topics.delete_topics(make_session(), ["t"]))
    request = play.send().request
    assert isinstance(request, DeleteTopicsRequest)
    assert (play.send().version_min, request.topic_names) == (0, ["t"])
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=missing)])
    with pytest.raises(ApiError, match="does not exist"):
        play.respond(answer)


def config_answer(kind: ConfigResourceType, name: str) -> DescribeConfigsResponse:
    entry = DescribeConfigsResourceResult(
        name="k", value="v", read_only=False, config_source=5, is_sensitive=False, synonyms=[]
    )
    result = DescribeConfigsResult(resource_type=kind, resource_name=name, configs=[entry])
    return DescribeConfigsResponse(results=[result])


def test_a_brokers_configs_are_asked_of_that_broker() -> None:
    topic, broker = (
        ConfigResource(ConfigResourceType.TOPIC, "t"),
        ConfigResource(ConfigResourceType.BROKER, "1"),
    )
    operation = admin_state.describe_configs(
        make_session(), [topic, broker], keys=None, documentation=False
    )
    play = OperationDriver(operation)
    play.respond(config_answer(ConfigResourceType.TOPIC, "t"))
    assert isinstance(play.send().request, MetadataRequest)
    play.respond(metadata(brokers=(0, 1)))
    assert play.send().node == 1
    play.respond(config_answer(ConfigResourceType.BROKER, "1"))
    assert isinstance(play.result, dict)
    assert set(play.result) == {topic, broker}
    assert play.result[topic]["k"].is_default


def test_a_refused_config_change_names_the_resource() -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    changes = {resource: [ConfigChange("k", "v")]}
    play = OperationDriver(admin_state.alter_configs(make_session(), changes, validate_only=False))
    assert isinstance(play.send().request, IncrementalAlterConfigsRequest)
    refusal = AlterConfigsResourceResponse(
        error_code=ErrorCode.INVALID_CONFIG,
        error_message="unknown key k",
        resource_type=2,
        resource_name="t",
    )
    with pytest.raises(ApiError, match="configs of 't': unknown key k"):
        play.respond(IncrementalAlterConfigsResponse(responses=[refusal]))


def test_configs_of_a_missing_topic_are_not_asked_for_again() -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "nowhere")
    changes = {resource: [ConfigChange("k", "v")]}
    play = OperationDriver(admin_state.alter_configs(make_session(), changes, validate_only=False))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unaltered = AlterConfigsResourceResponse(
        error_code=missing, resource_type=2, resource_name="nowhere"
    )
    with pytest.raises(MissingTopic, match="topic 'nowhere' does not exist"):
        play.respond(IncrementalAlterConfigsResponse(responses=[unaltered]))
    described = OperationDriver(
        admin_state.describe_configs(make_session(), [resource], keys=None, documentation=False)
    )
    unknown = DescribeConfigsResult(
        error_code=missing, resource_type=2, resource_name="nowhere", configs=[]
    )
    with pytest.raises(MissingTopic, match="topic 'nowhere' does not exist"):
        described.respond(DescribeConfigsResponse(results=[unknown]))


def test_records_are_deleted_by_the_leaders_of_their_partitions() -> None:
    session = make_session()
    session.cluster.update(metadata(2), 0)
    before = {TopicPartition("t", 0): 5, TopicPartition("t", 1): -1}
    play = OperationDriver(admin_state.delete_records(session, before))
    (send,) = play.requests()
    assert isinstance(send.request, DeleteRecordsRequest)
    assert [p.offset for p in send.request.topics[0].partitions] == [5, -1]
    parts = [
        DeleteRecordsPartitionResult(partition_index=0, low_watermark=5),
        DeleteRecordsPartitionResult(partition_index=1, low_watermark=9),
    ]
    topic = DeleteRecordsTopicResult(name="t", partitions=parts)
    play.respond([DeleteRecordsResponse(topics=[topic])])
    assert play.result == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 9}
