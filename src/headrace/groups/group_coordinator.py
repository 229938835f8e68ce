"""The group coordinator of this node: each request is an operation on the shard of its group.

Calls raise `ApiError` where the whole request is refused at once; otherwise `reply` is called,
exactly once, with the response or with the reason why there is none.
"""

from collections.abc import Callable, Iterable
from functools import partial

from headrace.coordinator.internal_topic import InternalTopic
from headrace.coordinator.result import ReplyCallback
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.runtime import Clock, Randomness
from headrace.groups import consumer_group_requests, offset_requests, queries
from headrace.groups.consumer.describe import describe_error
from headrace.groups.names import (
    check_group_id,
    check_join,
    check_member_names,
    require_group_id,
)
from headrace.groups.result import ClientInfo, GroupResult
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.groups.shard_state import GroupCounts
from headrace.groups.stored_offsets import GroupRecordDecoder
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.image import Image
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.protocol.compression import Codec
from headrace.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headrace.protocol.messages.describe_groups import DescribedGroup
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headrace.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.replication.replica_manager import ReplicaManager


class GroupCoordinator:
    """All groups that this node coordinates."""

    def __init__(
        self,
        newest_image: Callable[[], Image],
        replicas: ReplicaManager,
        topics: AutoTopicCreationManager,
        clock: Clock,
        randomness: Randomness,
        config: BrokerConfig,
    ) -> None:
        """`newest_image` is the newest that is committed, though publishers may not have seen it
        yet: offsets of a topic that is not in it are forgotten."""
        self._replicas = replicas
        self._randomness = randomness
        self._settings = settings = GroupSettings.of(config)
        self._topic = InternalTopic(newest_image, topics, OFFSETS_TOPIC)
        self.counts = counts = GroupCounts()

        def new_result(now_ms: int, time_ms: int) -> GroupResult:
            return GroupResult(now_ms, time_ms, settings, newest_image())

        self.runtime: CoordinatorRuntime[GroupShard, GroupResult] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            replicas,
            clock,
            Codec(config.offsets_topic_compression_codec),
            partition_of=self._partition_of,
            new_shard=lambda: GroupShard(counts),
            new_decoder=GroupRecordDecoder,
            new_result=new_result,
        )

    # Life

    def start(self) -> None:
        """Groups whose partitions are led here are loaded in the background."""
        self._replicas.add_leadership_listener(self.runtime)

    async def coordinator_partition(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to, by Kafka's rule.

        The topic is created on first need. Raises COORDINATOR_NOT_AVAILABLE where it cannot be.
        """
        await self._topic.ensure()
        index = self._topic.partition_of(group_id)
        if index is None:  # deleted again
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return index

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._randomness.uuid()}"

    def _partition_of(self, group_id: str) -> int | None:
        check_group_id(group_id)
        return self._topic.partition_of(group_id)

    # Members of classic groups

    def join(self, request: JoinGroupRequest, client: ClientInfo, reply: ReplyCallback) -> None:
        check_join(request, client.client_id, self._settings)
        self.runtime.write(
            request.group_id,
            lambda shard, result: shard.join(request, client, reply, result),
            reply,
        )

    def sync(self, request: SyncGroupRequest, reply: ReplyCallback) -> None:
        require_group_id(request.group_id)
        self.runtime.write(
            request.group_id, lambda shard, result: shard.sync(request, reply, result), reply
        )

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answered at once: it tells nothing that could be lost."""
        require_group_id(request.group_id)
        try:
            return self.runtime.write(
                request.group_id, lambda shard, result: shard.heartbeat(request, result)
            )
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()  # sessions do not run yet, so all is well
            raise

    def leave(self, request: LeaveGroupRequest, reply: ReplyCallback) -> None:
        require_group_id(request.group_id)
        self.runtime.write(
            request.group_id, lambda shard, result: shard.leave(request, reply, result), reply
        )

    # Members of consumer groups

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: ClientInfo,
        can_describe: Callable[[str], bool],
        reply: ReplyCallback,
    ) -> None:
        check_member_names(
            client.client_id,
            request.member_id,
            request.instance_id,
            request.rack_id,
            request.subscribed_topic_regex,
            *(request.subscribed_topic_names or ()),
        )
        self.runtime.write(
            request.group_id,
            lambda shard, result: consumer_group_requests.consumer_heartbeat(
                shard, request, client, reply, result, can_describe
            ),
            reply,
        )

    # Offsets

    def commit(self, request: OffsetCommitRequest, api_version: int, reply: ReplyCallback) -> None:
        self.runtime.write(
            request.group_id,
            lambda shard, result: offset_requests.commit(
                shard, request, api_version, reply, result
            ),
            reply,
        )

    def delete_offsets(self, request: OffsetDeleteRequest, reply: ReplyCallback) -> None:
        require_group_id(request.group_id)
        self.runtime.write(
            request.group_id,
            lambda shard, result: offset_requests.delete(shard, request, reply, result),
            reply,
        )

    # Several groups: one that is refused is a value among the others

    def fetch(
        self,
        requests: Iterable[OffsetFetchRequestGroup],
        reply: Callable[[list[OffsetFetchResponseGroup]], None],
    ) -> None:
        """Offsets of several groups."""
        self.runtime.read_each(
            [
                (request.group_id, partial(offset_requests.fetch, request=request))
                for request in requests
            ],
            offset_requests.fetch_error,
            reply,
        )

    def describe(
        self,
        group_ids: Iterable[str],
        api_version: int,
        reply: Callable[[list[DescribedGroup]], None],
    ) -> None:
        describe = partial(queries.describe_group, api_version=api_version)
        self.runtime.read_each(
            [(group_id, partial(describe, group_id=group_id)) for group_id in group_ids],
            queries.describe_error,
            reply,
        )

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        reply: Callable[[list[DescribedConsumerGroup]], None],
    ) -> None:
        """They write nothing, but need to know the cluster."""
        describe = consumer_group_requests.describe_group
        self.runtime.write_each(
            [(group_id, partial(describe, group_id=group_id)) for group_id in group_ids],
            describe_error,
            reply,
        )

    def delete_groups(
        self, request: DeleteGroupsRequest, reply: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Delete each group that is empty; the response waits for all of them."""
        delete = offset_requests.delete_group
        self.runtime.write_each(
            [
                (group_id, partial(delete, group_id=group_id))
                for group_id in dict.fromkeys(request.groups_names)
            ],
            offset_requests.delete_error,
            lambda results: reply(DeleteGroupsResponse(results=results)),
        )

    def list_groups(
        self, request: ListGroupsRequest, reply: Callable[[ListGroupsResponse], None]
    ) -> None:
        states = frozenset(state.lower() for state in request.states_filter)
        types = frozenset(name.lower() for name in request.types_filter)

        def finish(found: list[list[ListedGroup]] | ApiError) -> None:
            if isinstance(found, ApiError):
                reply(ListGroupsResponse(error_code=found.code, groups=[]))
            else:
                reply(ListGroupsResponse(groups=[group for groups in found for group in groups]))

        self.runtime.read_all(
            lambda shard: queries.list_groups(shard, states, types),
            finish,
        )
