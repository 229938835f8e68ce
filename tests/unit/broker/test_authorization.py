"""Every handler asks before it acts, and a refusal reaches the client as one."""

from pathlib import Path

import pytest

from headrace.broker.in_process import InProcessConnection
from headrace.broker.request import RequestOrigin
from headrace.broker.routes import ROUTES_ON
from headrace.core.errors import ErrorCode
from headrace.core.ids import NO_TOPIC_ID, NodeId
from headrace.core.listeners import ListenerType
from headrace.network.address import BrokerAddress
from headrace.network.send_request import SendRequest
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.message import Message, Struct
from headrace.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from headrace.security.authorizer import Action
from headrace.security.principal import Principal
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

ROUTES = ROUTES_ON[ListenerType.BROKER]

TOPIC = "t"
GROUP = "g"

# The highest version that names topics rather than ids, so that a name can be refused.
NEWEST_BY_NAME = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}

REQUESTS: dict[int, Message] = {
    ApiKey.PRODUCE: produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name=TOPIC, partition_data=[produce.PartitionProduceData(index=0, records=b"")]
            )
        ],
    ),
    ApiKey.FETCH: fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            fetch.FetchTopic(
                topic=TOPIC,
                partitions=[
                    fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                ],
            )
        ],
    ),
    ApiKey.LIST_OFFSETS: list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsTopic(
                name=TOPIC,
                partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)],
            )
        ],
    ),
    ApiKey.METADATA: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]),
    ApiKey.OFFSET_COMMIT: offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=0
                    )
                ],
            )
        ],
    ),
    ApiKey.OFFSET_FETCH: offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    ),
    ApiKey.FIND_COORDINATOR: find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP]),
    ApiKey.JOIN_GROUP: join_group.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    ApiKey.SYNC_GROUP: sync_group.SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    ),
    ApiKey.HEARTBEAT: heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"),
    ApiKey.LEAVE_GROUP: leave_group.LeaveGroupRequest(
        group_id=GROUP, members=[leave_group.MemberIdentity(member_id="m")]
    ),
    ApiKey.OFFSET_DELETE: offset_delete.OffsetDeleteRequest(group_id=GROUP, topics=[]),
    ApiKey.LIST_GROUPS: list_groups.ListGroupsRequest(),
    ApiKey.DESCRIBE_GROUPS: describe_groups.DescribeGroupsRequest(groups=[GROUP]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", member_epoch=1
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest(
        group_ids=[GROUP], include_authorized_operations=False
    ),
    ApiKey.DELETE_GROUPS: delete_groups.DeleteGroupsRequest(groups_names=[GROUP]),
    ApiKey.CREATE_TOPICS: create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
        ]
    ),
    ApiKey.DELETE_TOPICS: delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=TOPIC, topic_id=NO_TOPIC_ID)], timeout_ms=1000
    ),
    ApiKey.DELETE_RECORDS: delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(
                name=TOPIC,
                partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)],
            )
        ],
        timeout_ms=1000,
    ),
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(transaction_timeout_ms=1000),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=TOPIC,
                partitions=[
                    offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                ],
            )
        ]
    ),
    ApiKey.DESCRIBE_CONFIGS: describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=2, resource_name=TOPIC, configuration_keys=None
            )
        ]
    ),
    ApiKey.ALTER_CONFIGS: alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[])
        ],
        validate_only=False,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.DescribeLogDirsRequest(topics=None),
    ApiKey.CREATE_PARTITIONS: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=2, resource_name=TOPIC, configs=[]
            )
        ],
        validate_only=False,
    ),
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterRequest(include_cluster_authorized_operations=False),
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0])]
    ),
    ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=TOPIC)]
    ),
}

# Whoever may see nothing is shown a list without anything in it, as Kafka does.
SILENT = {ApiKey.LIST_GROUPS}

REFUSALS = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class DenyAll:
    """Refuses everything and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Action] = []

    def allows(self, action: Action) -> bool:
        self.asked.append(action)
        return False


def error_codes(value: object) -> set[int]:
    """Every error code anywhere in an answer."""
    found: set[int] = set()
    if isinstance(value, Struct):
        for name in value.fields_declared:
            field = getattr(value, name)
            if name == "error_code":
                found.add(field)
            else:
                found |= error_codes(field)
    elif isinstance(value, list):
        for each in value:
            found |= error_codes(each)
    return found


def test_every_route_but_api_versions_has_a_request_here() -> None:
    assert set(REQUESTS) == set(ROUTES) - {ApiKey.API_VERSIONS}, "add a request to REQUESTS"


@pytest.mark.parametrize("api_key", sorted(REQUESTS), ids=lambda key: ApiKey(key).name)
async def test_a_handler_asks_and_a_refusal_is_answered(api_key: int, tmp_path: Path) -> None:
    authorizer = DenyAll()
    version = NEWEST_BY_NAME.get(ApiKey(api_key), ROUTES[api_key].highest_version)
    async with (
        running_node(tmp_path, authorizer) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        answer = await client.call(REQUESTS[api_key], version)
    assert authorizer.asked, "the handler asked for no permission"
    assert {str(action.principal) for action in authorizer.asked} == {"User:ANONYMOUS"}
    assert error_codes(answer) & REFUSALS or api_key in SILENT


@pytest.mark.parametrize(
    "api_key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS], ids=lambda key: key.name
)
async def test_the_broker_itself_needs_no_permission(api_key: ApiKey, tmp_path: Path) -> None:
    authorizer = DenyAll()
    origin = RequestOrigin(Principal("Broker", "0"), "/local", "in-process", is_this_broker=True)
    async with running_node(tmp_path, authorizer) as node:
        here = InProcessConnection(BrokerAddress(NodeId(0), "-", 1), node.processor, origin, "test")
        version = NEWEST_BY_NAME.get(api_key, ROUTES[api_key].highest_version)
        asked = SendRequest(NodeId(0), REQUESTS[api_key], Message, 5_000, version_max=version)
        answer = await here.submit(asked)
    assert authorizer.asked == []
    assert error_codes(answer) - {ErrorCode.NONE} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
