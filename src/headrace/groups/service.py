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
from headrace.core.seams import Clock, Randomness
from headrace.core.shared_calls import call_each
from headrace.groups import consumer_steps, offset_requests, queries
from headrace.groups.consumer.describe import undescribed
from headrace.groups.homes import Home, Homes
from headrace.groups.journal import Reply, refuse
from headrace.groups.names import require_short
from headrace.groups.offsets_topic import OffsetsTopic
from headrace.groups.settings import GroupSettings
from headrace.groups.step import Caller, Step
from headrace.groups.upkeep import Upkeep
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
        self._topic = OffsetsTopic(controller, config)
        self._homes = Homes(
            self._topic,
            replicas,
            Codec(config.offsets_topic_compression_codec),
            on_ready=lambda home: self._upkeep.begin(home),
            on_failure=self._failed,
        )
        self._upkeep = Upkeep(
            self._homes,
            self._step,
            self._append,
            config.offsets_retention_check_interval_ms,
            on_expired=self._count_expired,
            on_failed=self._abandon,
        )
        self.commits = 0
        """Offsets committed since the start."""
        self.rebalances = 0
        """Generations of classic groups completed and epochs of others begun since the start."""
        self.expired_offsets = 0
        """Offsets that outlived their retention since the start."""

    # Life

    def start(self) -> None:
        """Follow the metadata; shards with records are loaded in the background."""
        self._controller.add_publisher(self._upkeep.follow)
        self._homes.load_all()
        self._upkeep.start()

    async def close(self) -> None:
        self._upkeep.close()
        await self._topic.close()
        await self._homes.close()

    def kill(self) -> None:
        """Stop at once, as the death of the process would."""
        self._upkeep.close()
        self._homes.kill()

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` on first need; raises COORDINATOR_NOT_AVAILABLE."""
        await self._topic.ensure()

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to, by Kafka's rule."""
        return self._topic.partition_of(group_id)

    # Members of classic groups

    def join(self, request: JoinGroupRequest, caller: Caller, reply: Reply) -> None:
        _require_group_id(request.group_id)
        require_short(
            caller.client_id,
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
        home, step = self._homes.find(request.group_id), self._step()
        with self._deciding(home, step, reply):
            home.shard.join(request, caller, reply, step)
        self._carry_out(home, request.group_id, step)

    def sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        _require_group_id(request.group_id)
        home, step = self._homes.find(request.group_id), self._step()
        with self._deciding(home, step, reply):
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
        with self._deciding(home, step):
            response = home.shard.heartbeat(request, step)
        if step.writes or response.error_code:
            self._carry_out(home, request.group_id, step)
        return response

    def leave(self, request: LeaveGroupRequest, reply: Reply) -> None:
        _require_group_id(request.group_id)
        home, step = self._homes.find(request.group_id), self._step()
        with self._deciding(home, step, reply):
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
        require_short(
            caller.client_id,
            request.member_id,
            request.instance_id,
            request.rack_id,
            request.subscribed_topic_regex,
            *(request.subscribed_topic_names or ()),
        )
        with self._deciding(home, step, reply):
            consumer_steps.consumer_heartbeat(
                home.shard, request, caller, reply, step, can_describe
            )
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

    def _step(self) -> Step:
        now_ms = int(self._clock.monotonic_ms())
        return Step(now_ms, self._clock.now_ms(), self._settings, self._controller.image)

    def _append(self, home: Home, step: Step) -> None:
        """Append and apply what a step decided, in the same turn of the loop."""
        home.journal.write(step.writes, step.answers, step.time_ms)
        try:
            for record, applied, _ in step.writes:
                if not applied:
                    home.shard.apply(record)
                if type(record.key) is ConsumerGroupMetadataKey and record.value is not None:
                    self.rebalances += 1
        except Exception:
            # The log has it and the state has not: the log is right.
            logger.exception("a group record was not brought in: partition=%d", home.index)
            self._read_anew(home)

    @contextmanager
    def _deciding(self, home: Home, step: Step, asks: Reply | None = None) -> Iterator[None]:
        """Whatever a decision meets half way, nobody whom it was about to answer is left waiting.

        What it raises before it has decided anything is the answer of whoever `asks`, and
        changes nothing.
        """
        try:
            yield
        except Exception:
            if step.writes or step.answers:
                self._abandon(home, step, asks)
            raise

    def _abandon(self, home: Home, step: Step, asks: Reply | None = None) -> None:
        """Nobody knows what state a decision left that failed half way: read the shard anew."""
        logger.exception("a decision failed half way: partition=%d", home.index)
        unanswered = [each for each in step.answers if each.token is not asks]
        refuse(unanswered, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._read_anew(home, asks)

    def _carry_out(self, home: Home, group_id: str, step: Step) -> None:
        """`_append`, and look when the group wants to be looked at next."""
        self._append(home, step)
        self._upkeep.look_at(home, group_id)

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

    def _count_expired(self, offsets: int) -> None:
        self.expired_offsets += offsets

    def _failed(self, home: Home, code: ErrorCode) -> None:
        """What the log did not take must not be believed: read the shard anew."""
        logger.error("group records not written: partition=%d error=%s", home.index, code.name)
        self._read_anew(home)

    def _read_anew(self, home: Home, asks: Reply | None = None) -> None:
        self._homes.drop(home)
        refusal = ApiError(ErrorCode.NOT_COORDINATOR)
        waiting = [token for token in home.shard.parked() if token is not asks]
        call_each(logger, "a refusal", waiting, lambda token: cast(Reply, token)(refusal))


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
