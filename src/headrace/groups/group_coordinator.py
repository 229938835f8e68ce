"""The group coordinator of this node: requests in, answers out when they are durable.

Every request is one step of one shard: decided, appended, applied and answered (`journal.py`).
Calls raise `ApiError` where the whole request is refused at once; otherwise `reply` is called,
exactly once, with the answer or with the reason why there is none.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from headrace.controller.controller import Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.runtime import Clock, Randomness
from headrace.core.shared_calls import call_each
from headrace.groups import consumer_group_requests, offset_requests, queries
from headrace.groups.consumer.describe import describe_error
from headrace.groups.group_timers import GroupTimers
from headrace.groups.names import require_name_lengths
from headrace.groups.offsets_topic import OffsetsTopic
from headrace.groups.partition_writer import ReplyCallback, fail_replies
from headrace.groups.result import ClientInfo, Result
from headrace.groups.settings import GroupSettings
from headrace.groups.shards import LoadedShard, ShardTable
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import (
    DeletableGroupResult,
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
from headrace.protocol.schemas.consumer_groups import ConsumerGroupMetadataKey
from headrace.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """All groups that this node coordinates."""

    def __init__(
        self,
        controller: Controller,
        replicas: ReplicaManager,
        clock: Clock,
        randomness: Randomness,
        config: BrokerConfig,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._randomness = randomness
        self._config = config
        self._settings = GroupSettings.of(config)
        self._topic = OffsetsTopic(controller, config)
        self._shards = ShardTable(
            self._topic,
            replicas,
            Codec(config.offsets_topic_compression_codec),
            on_loaded=lambda home: self._timers.shard_loaded(home),
            on_failure=self._write_failed,
        )
        self._timers = GroupTimers(
            self._shards,
            self._new_result,
            self._append,
            config.offsets_retention_check_interval_ms,
            on_expired=self._count_expired,
            on_failed=self._fail_and_reload,
        )
        self.commits = 0
        """Offsets committed since the start."""
        self.rebalances = 0
        """Generations of classic groups completed and epochs of others begun since the start."""
        self.expired_offsets = 0
        """Offsets that outlived their retention since the start."""

    # Life

    def start(self) -> None:
        """Keep time; shards with records are loaded in the background."""
        self._shards.load_all()
        self._timers.start()

    async def publish(self, old: Image, new: Image, delta: Delta) -> None:
        """The metadata has changed."""
        await self._timers.metadata_changed(old, new, delta)

    async def close(self) -> None:
        self._timers.close()
        await self._topic.close()
        await self._shards.close()

    def kill(self) -> None:
        """Stop at once, as the death of the process would."""
        self._timers.close()
        self._shards.kill()

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` on first need; raises COORDINATOR_NOT_AVAILABLE."""
        await self._topic.ensure()

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to, by Kafka's rule."""
        return self._topic.partition_of(group_id)

    # Members of classic groups

    def join(self, request: JoinGroupRequest, client: ClientInfo, reply: ReplyCallback) -> None:
        _require_group_id(request.group_id)
        require_name_lengths(
            client.client_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            *(each.name for each in request.protocols),
        )
        settings = self._settings
        if not (
            settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        loaded, result = self._shards.find(request.group_id), self._new_result()
        with self._reload_on_failure(loaded, result, reply):
            loaded.shard.join(request, client, reply, result)
        self._append_and_schedule(loaded, request.group_id, result)

    def sync(self, request: SyncGroupRequest, reply: ReplyCallback) -> None:
        _require_group_id(request.group_id)
        loaded, result = self._shards.find(request.group_id), self._new_result()
        with self._reload_on_failure(loaded, result, reply):
            loaded.shard.sync(request, reply, result)
        self.rebalances += len(result.records)
        self._append_and_schedule(loaded, request.group_id, result)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answered at once: it tells nothing that could be lost."""
        _require_group_id(request.group_id)
        try:
            loaded = self._shards.find(request.group_id)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()  # sessions do not run yet, so all is well
            raise
        result = self._new_result()
        with self._reload_on_failure(loaded, result):
            response = loaded.shard.heartbeat(request, result)
        if result.records or response.error_code:
            self._append_and_schedule(loaded, request.group_id, result)
        return response

    def leave(self, request: LeaveGroupRequest, reply: ReplyCallback) -> None:
        _require_group_id(request.group_id)
        loaded, result = self._shards.find(request.group_id), self._new_result()
        with self._reload_on_failure(loaded, result, reply):
            loaded.shard.leave(request, reply, result)
        self._append_and_schedule(loaded, request.group_id, result)

    # Members of consumer groups

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: ClientInfo,
        can_describe: Callable[[str], bool],
        reply: ReplyCallback,
    ) -> None:
        loaded, result = self._shards.find(request.group_id), self._new_result()
        require_name_lengths(
            client.client_id,
            request.member_id,
            request.instance_id,
            request.rack_id,
            request.subscribed_topic_regex,
            *(request.subscribed_topic_names or ()),
        )
        with self._reload_on_failure(loaded, result, reply):
            consumer_group_requests.consumer_heartbeat(
                loaded.shard, request, client, reply, result, can_describe
            )
        if result.records:
            self._append_and_schedule(loaded, request.group_id, result)
        else:
            # It only moved a deadline, and only away.
            self._append(loaded, result)

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        reply: Callable[[list[DescribedConsumerGroup]], None],
    ) -> None:
        responses: list[DescribedConsumerGroup] = []
        shards: dict[int, LoadedShard] = {}
        for group_id in group_ids:
            try:
                loaded = self._shards.find(group_id)
                responses.append(
                    consumer_group_requests.describe_group(
                        loaded.shard, group_id, self._new_result()
                    )
                )
                shards[loaded.index] = loaded
            except ApiError as error:
                responses.append(describe_error(group_id, error))
        self._when_committed(shards.values(), lambda: reply(responses))

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._randomness.uuid()}"

    # Offsets

    def commit(self, request: OffsetCommitRequest, api_version: int, reply: ReplyCallback) -> None:
        loaded, result = self._shards.find(request.group_id), self._new_result()
        with self._reload_on_failure(loaded, result, reply):
            offset_requests.commit(loaded.shard, request, api_version, reply, result)
        self.commits += len(result.records)
        self._append(loaded, result)

    def fetch(
        self,
        requests: Iterable[OffsetFetchRequestGroup],
        reply: Callable[[list[OffsetFetchResponseGroup]], None],
    ) -> None:
        """Offsets of several groups; a group that fails is a value among the others."""
        responses: list[OffsetFetchResponseGroup] = []
        shards: dict[int, LoadedShard] = {}
        for request in requests:
            try:
                loaded = self._shards.find(request.group_id)
                responses.append(offset_requests.fetch(loaded.shard, request))
                shards[loaded.index] = loaded
            except ApiError as error:
                responses.append(
                    OffsetFetchResponseGroup(
                        group_id=request.group_id, topics=[], error_code=error.code
                    )
                )
        self._when_committed(shards.values(), lambda: reply(responses))

    def delete_offsets(self, request: OffsetDeleteRequest, reply: ReplyCallback) -> None:
        _require_group_id(request.group_id)
        loaded, result = self._shards.find(request.group_id), self._new_result()
        with self._reload_on_failure(loaded, result, reply):
            offset_requests.delete(loaded.shard, request, reply, result)
        self._append(loaded, result)

    # Groups as wholes

    def list_groups(
        self, request: ListGroupsRequest, reply: Callable[[ListGroupsResponse], None]
    ) -> None:
        if self._shards.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = frozenset(state.lower() for state in request.states_filter)
        types = frozenset(name.lower() for name in request.types_filter)
        groups: list[ListedGroup] = []
        for loaded in self._shards:
            groups += queries.list_groups(loaded.shard, states, types)
        response = ListGroupsResponse(groups=groups)
        self._when_committed(self._shards, lambda: reply(response))

    def describe(
        self,
        group_ids: Iterable[str],
        api_version: int,
        reply: Callable[[list[DescribedGroup]], None],
    ) -> None:
        responses: list[DescribedGroup] = []
        shards: dict[int, LoadedShard] = {}
        for group_id in group_ids:
            try:
                loaded = self._shards.find(group_id)
                responses.append(queries.describe_group(loaded.shard, group_id, api_version))
                shards[loaded.index] = loaded
            except ApiError as error:
                responses.append(queries.describe_error(group_id, error.code))
        self._when_committed(shards.values(), lambda: reply(responses))

    def delete_groups(
        self, request: DeleteGroupsRequest, reply: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Delete each group that is empty; the answer waits for all of them."""
        results: list[DeletableGroupResult] = []
        shards: dict[int, LoadedShard] = {}
        for group_id in dict.fromkeys(request.groups_names):
            outcome = DeletableGroupResult(group_id=group_id)
            results.append(outcome)
            try:
                loaded, result = self._shards.find(group_id), self._new_result()
            except ApiError as error:
                outcome.error_code = error.code
                continue
            with self._reload_on_failure(loaded, result):
                outcome.error_code = offset_requests.delete_group(loaded.shard, group_id, result)
            shards[loaded.index] = loaded
            self._append(loaded, result)
        self._when_committed(shards.values(), lambda: reply(DeleteGroupsResponse(results=results)))

    # Steps

    def _new_result(self) -> Result:
        now_ms = int(self._clock.monotonic_ms())
        return Result(now_ms, self._clock.now_ms(), self._settings, self._controller.image)

    def _append(self, loaded: LoadedShard, result: Result) -> None:
        """Append what a step decided, in the same turn of the loop."""
        loaded.writer.write(result.encoded, result.replies, result.time_ms)
        for record in result.records:
            if type(record.key) is ConsumerGroupMetadataKey and record.value is not None:
                self.rebalances += 1

    @contextmanager
    def _reload_on_failure(
        self, loaded: LoadedShard, result: Result, requester: ReplyCallback | None = None
    ) -> Iterator[None]:
        """Whatever a decision meets half way, nobody whom it was about to answer is left waiting.

        What it raises before it has decided anything is the answer of whoever `asks`, and
        changes nothing.
        """
        try:
            yield
        except Exception:
            if result.records or result.replies:
                self._fail_and_reload(loaded, result, requester)
            raise

    def _fail_and_reload(
        self, loaded: LoadedShard, result: Result, requester: ReplyCallback | None = None
    ) -> None:
        """Nobody knows what state a decision left that failed half way: read the shard anew."""
        logger.exception("a decision failed half way: partition=%d", loaded.index)
        others = [each for each in result.replies if each.reply is not requester]
        fail_replies(others, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._reload(loaded, requester)

    def _append_and_schedule(self, loaded: LoadedShard, group_id: str, result: Result) -> None:
        """`_append`, and look when the group wants to be looked at next."""
        self._append(loaded, result)
        self._timers.schedule(loaded, group_id)

    def _when_committed(self, shards: Iterable[LoadedShard], callback: Callable[[], None]) -> None:
        """Call once all that these shards have decided is committed, or never will be."""
        waiting = [home for home in shards if not home.writer.is_committed]
        if not waiting:
            callback()
            return
        missing = len(waiting)

        def one_less(_: Message | ApiError) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                callback()

        for loaded in waiting:
            loaded.writer.when_committed(one_less)

    def _count_expired(self, offsets: int) -> None:
        self.expired_offsets += offsets

    def _write_failed(self, loaded: LoadedShard, code: ErrorCode) -> None:
        """What the log did not take must not be believed: read the shard anew."""
        logger.error("group records not written: partition=%d error=%s", loaded.index, code.name)
        self._reload(loaded)

    def _reload(self, loaded: LoadedShard, requester: ReplyCallback | None = None) -> None:
        self._shards.unload_and_reload(loaded)
        error = ApiError(ErrorCode.NOT_COORDINATOR)
        waiting = [token for token in loaded.shard.waiting_replies() if token is not requester]
        call_each(logger, "a refusal", waiting, lambda token: cast(ReplyCallback, token)(error))


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
