"""Which APIs the codec knows, in which versions, and where their classes live.

Classes are imported when first asked for: a broker that serves five APIs loads five modules.
What a broker advertises is its own choice and a subset of this.
"""

import re
from enum import IntEnum
from importlib import import_module
from typing import Final, NamedTuple

from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message


class ApiKey(IntEnum):
    """The APIs of this codec, by Kafka's number."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """Versions of one API; `flexible_from` is the first with compact lengths and tagged fields."""

    name: str
    lowest_version: int
    highest_version: int
    flexible_from: int | None

    @property
    def module(self) -> str:
        """Where the request and response classes are declared."""
        return "headrace.protocol.messages." + re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


APIS: Final[dict[int, Api]] = {
    ApiKey.PRODUCE: Api("Produce", 3, 13, 9),
    ApiKey.FETCH: Api("Fetch", 4, 18, 12),
    ApiKey.LIST_OFFSETS: Api("ListOffsets", 1, 11, 6),
    ApiKey.METADATA: Api("Metadata", 0, 13, 9),
    ApiKey.OFFSET_COMMIT: Api("OffsetCommit", 2, 10, 8),
    ApiKey.OFFSET_FETCH: Api("OffsetFetch", 1, 10, 6),
    ApiKey.FIND_COORDINATOR: Api("FindCoordinator", 0, 6, 3),
    ApiKey.JOIN_GROUP: Api("JoinGroup", 0, 9, 6),
    ApiKey.HEARTBEAT: Api("Heartbeat", 0, 4, 4),
    ApiKey.LEAVE_GROUP: Api("LeaveGroup", 0, 5, 4),
    ApiKey.SYNC_GROUP: Api("SyncGroup", 0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: Api("DescribeGroups", 0, 6, 5),
    ApiKey.LIST_GROUPS: Api("ListGroups", 0, 5, 3),
    ApiKey.SASL_HANDSHAKE: Api("SaslHandshake", 0, 1, None),
    ApiKey.API_VERSIONS: Api("ApiVersions", 0, 4, 3),
    ApiKey.CREATE_TOPICS: Api("CreateTopics", 2, 7, 5),
    ApiKey.DELETE_TOPICS: Api("DeleteTopics", 1, 6, 4),
    ApiKey.DELETE_RECORDS: Api("DeleteRecords", 0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: Api("InitProducerId", 0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api("OffsetForLeaderEpoch", 2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api("AddPartitionsToTxn", 0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: Api("AddOffsetsToTxn", 0, 4, 3),
    ApiKey.END_TXN: Api("EndTxn", 0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: Api("WriteTxnMarkers", 1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: Api("TxnOffsetCommit", 0, 5, 3),
    ApiKey.DESCRIBE_ACLS: Api("DescribeAcls", 1, 3, 2),
    ApiKey.CREATE_ACLS: Api("CreateAcls", 1, 3, 2),
    ApiKey.DELETE_ACLS: Api("DeleteAcls", 1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: Api("DescribeConfigs", 1, 4, 4),
    ApiKey.ALTER_CONFIGS: Api("AlterConfigs", 0, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Api("DescribeLogDirs", 1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: Api("SaslAuthenticate", 0, 2, 2),
    ApiKey.CREATE_PARTITIONS: Api("CreatePartitions", 0, 3, 2),
    ApiKey.DELETE_GROUPS: Api("DeleteGroups", 0, 2, 2),
    ApiKey.ELECT_LEADERS: Api("ElectLeaders", 0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api("IncrementalAlterConfigs", 0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api("AlterPartitionReassignments", 0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api("ListPartitionReassignments", 0, 0, 0),
    ApiKey.OFFSET_DELETE: Api("OffsetDelete", 0, 0, None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api("DescribeClientQuotas", 0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Api("AlterClientQuotas", 0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api("DescribeUserScramCredentials", 0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api("AlterUserScramCredentials", 0, 0, 0),
    ApiKey.DESCRIBE_QUORUM: Api("DescribeQuorum", 0, 2, 0),
    ApiKey.DESCRIBE_CLUSTER: Api("DescribeCluster", 0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: Api("DescribeProducers", 0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Api("DescribeTransactions", 0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: Api("ListTransactions", 0, 2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: Api("AllocateProducerIds", 0, 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api("ConsumerGroupHeartbeat", 0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api("ConsumerGroupDescribe", 0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Api("ListConfigResources", 0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api("DescribeTopicPartitions", 0, 0, 0),
}

# From this version on a request carries header v2 and a response header v1.
FLEXIBLE_FROM: Final[dict[int, int]] = {
    key: api.flexible_from for key, api in APIS.items() if api.flexible_from is not None
}

_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def request_class(api_key: int) -> type[Message]:
    """The request class of an API, imported on first use."""
    found = _requests.get(api_key)
    if found is None:
        found = _requests[api_key] = _load(api_key, "Request")
    return found


def response_class(api_key: int) -> type[Message]:
    """The response class of an API, imported on first use."""
    found = _responses.get(api_key)
    if found is None:
        found = _responses[api_key] = _load(api_key, "Response")
    return found


def _load(api_key: int, direction: str) -> type[Message]:
    api = APIS.get(api_key)
    if api is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"API key {api_key} is not known")
    cls: type[Message] = getattr(import_module(api.module), api.name + direction)
    return cls
