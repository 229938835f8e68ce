"""The group coordinator of this node: requests in, answers out when they are durable.

Every request is one step of one shard: decided, appended, applied and answered (`journal.py`).
Calls raise `ApiError` where the whole request is refused at once; otherwise `reply` is called,
exactly once, with the answer or with the reason why there is none.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import cast

from headrace.controller.commands import CreateTopics, NewTopic
from headrace.controller.controller import Controller
from headrace.controller.image import Delta, Image
from headrace.controller.names import OFFSETS_TOPIC
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.seams import Clock, Randomness
from headrace.groups import consumer_steps, offset_requests, queries
from headrace.groups.consumer.describe import undescribed
from headrace.groups.deadlines import Deadlines, Key
from headrace.groups.homes import Home, Homes, string_hash
from headrace.groups.journal import Reply
from headrace.groups.settings import GroupSettings
from headrace.groups.step import Caller, Step
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
from headrace.replication.replicas import Replicas

logger = logging.getLogger(__name__)


class Groups:
    """All groups that this node coordinates."""

    def __init__(
        self,
        controller: Controller,
        replicas: Replicas,
        clock: Clock,
        randomness: Randomness,
        config: BrokerConfig,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._randomness = randomness
        self._config = config
        self._settings = GroupSettings.of(config)
        self._homes = Homes(
            controller,
            replicas,
            Codec(config.offsets_topic_compression_codec),
            on_ready=self._ready,
            on_failure=self._failed,
        )
        self._deadlines = Deadlines(self._now_ms, self._due)
        self._creation: asyncio.Task[None] | None = None
        self._cleanup: asyncio.TimerHandle | None = None
        self._closed = False
        self.commits = 0
        """Offsets committed since the start."""
        self.rebalances = 0
        """Generations of classic groups completed since the start."""
        self.expired_offsets = 0

    # Life

    def start(self) -> None:
        """Follow the metadata; shards with records are loaded in the background."""
        self._controller.subscribe(self._follow)
        self._homes.load_all()
        self._schedule_cleanup()

    async def close(self) -> None:
        self._closed = True
        self._deadlines.close()
        if self._cleanup is not None:
            self._cleanup.cancel()
        if self._creation is not None:
            await asyncio.gather(self._creation, return_exceptions=True)
        await self._homes.close()

    def kill(self) -> None:
        """Stop at once, as the death of the process would."""
        self._closed = True
        self._deadlines.close()
        if self._cleanup is not None:
            self._cleanup.cancel()
        self._homes.kill()

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` on first need; raises COORDINATOR_NOT_AVAILABLE."""
        if OFFSETS_TOPIC in self._controller.image.topics:
            return
        if self._creation is None:
            loop = asyncio.get_running_loop()
            self._creation = loop.create_task(self._create_topic())
        await asyncio.shield(self._creation)

    async def _create_topic(self) -> None:
        config = self._config
        try:
            (created,) = await self._controller.submit(
                CreateTopics(
                    (
                        NewTopic(
                            OFFSETS_TOPIC,
                            config.offsets_topic_num_partitions,
                            config.offsets_topic_replication_factor,
                            configs=(
                                ("cleanup.policy", "compact"),
                                ("compression.type", "producer"),
                                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                            ),
                        ),
                    )
                )
            )
        finally:
            self._creation = None
        if created.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning(
                "cannot create a topic: topic=%s error=%s", OFFSETS_TOPIC, created.message
            )
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to, by Kafka's rule."""
        count = self._homes.partition_count() or self._config.offsets_topic_num_partitions
        return abs(string_hash(group_id)) % count

    # Members of classic groups

    def join(self, request: JoinGroupRequest, caller: Caller, reply: Reply) -> None:
        _require_group_id(request.group_id)
        settings = self._settings
        if not (
            settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        home, step = self._homes.find(request.group_id), self._step()
        home.shard.join(request, caller, reply, step)
        self._carry_out(home, request.group_id, step)

    def sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        _require_group_id(request.group_id)
        home, step = self._homes.find(request.group_id), self._step()
        home.shard.sync(request, reply, step)
        self.rebalances += len(step.writes)
        self._carry_out(home, request.group_id, step)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answered at once: it tells nothing that could be lost."""
        _require_group_id(request.group_id)
        try:
            home = self._homes.find(request.group_id)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()  # sessions do not run yet, so all is well
            raise
        step = self._step()
        response = home.shard.heartbeat(request, step)
        if step.writes or response.error_code:
            self._carry_out(home, request.group_id, step)
        return response

    def leave(self, request: LeaveGroupRequest, reply: Reply) -> None:
        _require_group_id(request.group_id)
        home, step = self._homes.find(request.group_id), self._step()
        home.shard.leave(request, reply, step)
        self._carry_out(home, request.group_id, step)

    # Members of consumer groups

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        can_describe: Callable[[str], bool],
        reply: Reply,
    ) -> None:
        home, step = self._homes.find(request.group_id), self._step()
        consumer_steps.consumer_heartbeat(home.shard, request, caller, reply, step, can_describe)
        if step.writes:
            self._carry_out(home, request.group_id, step)
        else:
            # It only moved a deadline, and only away.
            self._append(home, step)

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        reply: Callable[[list[DescribedConsumerGroup]], None],
    ) -> None:
        answers: list[DescribedConsumerGroup] = []
        homes: dict[int, Home] = {}
        for group_id in group_ids:
            try:
                home = self._homes.find(group_id)
                answers.append(consumer_steps.described(home.shard, group_id, self._step()))
                homes[home.index] = home
            except ApiError as error:
                answers.append(undescribed(group_id, error))
        self._when_settled(homes.values(), lambda: reply(answers))

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._randomness.uuid()}"

    # Offsets

    def commit(self, request: OffsetCommitRequest, api_version: int, reply: Reply) -> None:
        home, step = self._homes.find(request.group_id), self._step()
        offset_requests.commit(home.shard, request, api_version, reply, step)
        self.commits += len(step.writes)
        self._append(home, step)

    def fetch(
        self,
        requests: Iterable[OffsetFetchRequestGroup],
        reply: Callable[[list[OffsetFetchResponseGroup]], None],
    ) -> None:
        """Offsets of several groups; a group that fails is a value among the others."""
        answers: list[OffsetFetchResponseGroup] = []
        homes: dict[int, Home] = {}
        for request in requests:
            try:
                home = self._homes.find(request.group_id)
                answers.append(offset_requests.fetch(home.shard, request))
                homes[home.index] = home
            except ApiError as error:
                answers.append(
                    OffsetFetchResponseGroup(
                        group_id=request.group_id, topics=[], error_code=error.code
                    )
                )
        self._when_settled(homes.values(), lambda: reply(answers))

    def delete_offsets(self, request: OffsetDeleteRequest, reply: Reply) -> None:
        _require_group_id(request.group_id)
        home, step = self._homes.find(request.group_id), self._step()
        offset_requests.delete(home.shard, request, reply, step)
        self._append(home, step)

    # Groups as wholes

    def list_groups(
        self, request: ListGroupsRequest, reply: Callable[[ListGroupsResponse], None]
    ) -> None:
        if self._homes.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = frozenset(state.lower() for state in request.states_filter)
        types = frozenset(name.lower() for name in request.types_filter)
        groups: list[ListedGroup] = []
        for home in self._homes:
            groups += queries.listed(home.shard, states, types)
        response = ListGroupsResponse(groups=groups)
        self._when_settled(self._homes, lambda: reply(response))

    def describe(
        self,
        group_ids: Iterable[str],
        api_version: int,
        reply: Callable[[list[DescribedGroup]], None],
    ) -> None:
        answers: list[DescribedGroup] = []
        homes: dict[int, Home] = {}
        for group_id in group_ids:
            try:
                home = self._homes.find(group_id)
                answers.append(queries.described(home.shard, group_id, api_version))
                homes[home.index] = home
            except ApiError as error:
                answers.append(queries.undescribed(group_id, error.code))
        self._when_settled(homes.values(), lambda: reply(answers))

    def delete_groups(
        self, request: DeleteGroupsRequest, reply: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Delete each group that is empty; the answer waits for all of them."""
        results: list[DeletableGroupResult] = []
        homes: dict[int, Home] = {}
        for group_id in dict.fromkeys(request.groups_names):
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            try:
                home, step = self._homes.find(group_id), self._step()
            except ApiError as error:
                result.error_code = error.code
                continue
            result.error_code = offset_requests.delete_group(home.shard, group_id, step)
            homes[home.index] = home
            self._append(home, step)
        self._when_settled(homes.values(), lambda: reply(DeleteGroupsResponse(results=results)))

    # Steps

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_ms())

    def _step(self) -> Step:
        return Step(self._now_ms(), self._clock.now_ms(), self._settings, self._controller.image)

    def _append(self, home: Home, step: Step) -> None:
        """Append and apply what a step decided."""
        for record, applied in step.writes:
            if not applied:
                home.shard.apply(record)
        home.journal.write(step.writes, step.answers, step.time_ms)

    def _carry_out(self, home: Home, group_id: str, step: Step) -> None:
        """`_append`, and look when the group wants to be looked at next."""
        self._append(home, step)
        deadline_ms = home.shard.next_deadline_ms(group_id)
        self._deadlines.at((home.index, group_id), deadline_ms)

    def _when_settled(self, homes: Iterable[Home], call: Callable[[], None]) -> None:
        """Call once all that these shards have decided is committed, or never will be."""
        waiting = [home for home in homes if not home.journal.is_settled]
        if not waiting:
            call()
            return
        missing = len(waiting)

        def one_less(_: Message | ApiError) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                call()

        for home in waiting:
            home.journal.when_settled(one_less)

    def _due(self, key: Key) -> int | None:
        index, group_id = key
        home = self._homes.at(index)
        if home is None:
            return None
        step = self._step()
        home.shard.expire(group_id, step)
        self._append(home, step)
        return home.shard.next_deadline_ms(group_id)

    def _ready(self, home: Home) -> None:
        step = self._step()
        offset_requests.forget_lost_topics(home.shard, step)
        self._append(home, step)
        home.shard.loaded(self._now_ms())
        for group_id in home.shard.groups:
            self._deadlines.at((home.index, group_id), home.shard.next_deadline_ms(group_id))

    def _failed(self, home: Home, code: ErrorCode) -> None:
        """What the log did not take must not be believed: read the shard anew."""
        logger.error("group records not written: partition=%d error=%s", home.index, code.name)
        self._homes.drop(home)
        refusal = ApiError(ErrorCode.NOT_COORDINATOR)
        for token in home.shard.parked():
            cast(Reply, token)(refusal)

    # Offsets that go by themselves

    def _follow(self, old: Image, new: Image, delta: Delta) -> None:
        gone = frozenset(
            name
            for name in delta.topics
            if name in old.topics
            and (name not in new.topics or new.topics[name].id != old.topics[name].id)
        )
        if not gone or self._closed:
            return
        for home in self._homes:
            step = self._step()
            offset_requests.forget_topics(home.shard, gone, step)
            self._append(home, step)

    def _schedule_cleanup(self) -> None:
        seconds = self._config.offsets_retention_check_interval_ms / 1000
        self._cleanup = asyncio.get_running_loop().call_later(seconds, self._clean_up)

    def _clean_up(self) -> None:
        for home in self._homes:
            for group_id in tuple(home.shard.groups):
                step = self._step()
                gone = offset_requests.expire_offsets(home.shard, group_id, step)
                self.expired_offsets += gone
                self._append(home, step)
        self._schedule_cleanup()


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
