"""The asyncio consumer in virtual time, with a scripted coordinator."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.client import (
    AsyncClient,
    AsyncConsumer,
    ClientClosed,
    ClientSettings,
    CommitFailed,
    ConsumerSettings,
    TopicPartition,
)
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.simulation.loop import VirtualLoop
from tests.support.client_core import TOPIC_ID
from tests.support.memberships import heartbeat_response
from tests.support.scripted_broker import HANG_UP, SILENCE, Instead, ScriptedBroker
from tests.unit.client.aio.conftest import Run

T0 = TopicPartition("t", 0)
END = 1_000
PER_FETCH = 10


class Group:
    """The broker's side: one partition of `END` records, one member, offsets kept."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.epoch = 1
        self.assigned = [0]
        self.told: list[int] | None = None
        self.committed = 0
        self.commits: list[int] = []
        self.commit_answers: list[int | Instead] = []
        self.hang_ups = 0
        self.left: list[int] = []
        self.refuse = 0
        broker.on(FindCoordinatorRequest, self._find)
        broker.on(ConsumerGroupHeartbeatRequest, self._heartbeat)
        broker.on(OffsetFetchRequest, self._offsets)
        broker.on(OffsetCommitRequest, self._commit)
        broker.on(FetchRequest, self._fetch)

    def _find(self, request: FindCoordinatorRequest) -> Message:
        node = self.broker.node_id
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node, host="broker", port=self.broker.port)
                for key in request.coordinator_keys
            ]
        )

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Message | Instead:
        if self.hang_ups:
            self.hang_ups -= 1
            return HANG_UP
        if request.member_epoch < 0:
            self.left.append(request.member_epoch)
            return heartbeat_response(epoch=request.member_epoch)
        if self.refuse:
            code, self.refuse = self.refuse, 0
            self.told = None
            return heartbeat_response(error_code=code)
        if request.member_epoch == 0:
            self.told = None
        if self.told == self.assigned:
            return heartbeat_response(epoch=self.epoch)
        self.told = list(self.assigned)
        return heartbeat_response(epoch=self.epoch, assigned={TOPIC_ID: self.assigned})

    def _offsets(self, request: OffsetFetchRequest) -> Message:
        part = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=self.committed, metadata=""
        )
        topic = OffsetFetchResponseTopics(name="t", partitions=[part])
        group = OffsetFetchResponseGroup(group_id=request.groups[0].group_id, topics=[topic])
        return OffsetFetchResponse(groups=[group])

    def _commit(self, request: OffsetCommitRequest) -> Message | Instead:
        answer = self.commit_answers.pop(0) if self.commit_answers else 0
        if isinstance(answer, Instead):
            return answer
        offset = request.topics[0].partitions[0].committed_offset
        if not answer:
            self.committed = offset
            self.commits.append(offset)
        part = OffsetCommitResponsePartition(partition_index=0, error_code=answer)
        topic = OffsetCommitResponseTopic(name="t", partitions=[part])
        return OffsetCommitResponse(topics=[topic])

    def _fetch(self, request: FetchRequest) -> Message | Instead:
        first = request.topics[0].partitions[0].fetch_offset
        if first >= END:
            return SILENCE
        last = min(first + PER_FETCH, END)
        records = [Record(offset, 1, None, b"%d" % offset) for offset in range(first, last)]
        data = PartitionData(
            partition_index=0,
            high_watermark=END,
            last_stable_offset=END,
            log_start_offset=0,
            records=encode_batch(records),
        )
        topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])
        return FetchResponse(responses=[topic])


async def start(**settings: object) -> tuple[AsyncClient, AsyncConsumer, Group]:
    broker = ScriptedBroker(9092)
    group = Group(broker)
    await broker.start()
    client = AsyncClient(ClientSettings("broker:9092", request_timeout_ms=2_000))
    wanted: dict[str, object] = {"auto_commit": False, **settings}
    made = ConsumerSettings("g", "consumer", **wanted)  # type: ignore[arg-type]  # test values
    return client, client.consumer(made), group


async def read_one(consumer: AsyncConsumer) -> int:
    async with asyncio.timeout(300):
        return (await anext(consumer)).offset


def test_heartbeats_go_on_while_the_program_works(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        async with client:
            await consumer.subscribe(["t"])
            assert await read_one(consumer) == 0
            before = len(group.broker.requests(ConsumerGroupHeartbeatRequest))
            await asyncio.sleep(60)
            beats = len(group.broker.requests(ConsumerGroupHeartbeatRequest)) - before
            assert 11 <= beats <= 13
            assert await read_one(consumer) == 1

    run(main())


def test_a_program_away_for_too_long_leaves_and_is_told_when_it_is_back(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start(max_poll_interval_ms=30_000)
        told: list[str] = []
        async with client:
            await consumer.subscribe(
                ["t"],
                on_assigned=lambda _: told.append("assigned"),
                on_lost=lambda _: told.append("lost"),
            )
            assert await read_one(consumer) == 0
            await asyncio.sleep(29)
            assert group.left == []
            await asyncio.sleep(2)
            assert group.left == [-1]
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert await read_one(consumer) == 0, "nothing was committed"
            assert told == ["assigned", "lost", "assigned"]

    run(main())


def test_a_loop_that_is_slow_but_steady_stays(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start(max_poll_interval_ms=10_000)
        async with client:
            await consumer.subscribe(["t"])
            for expected in range(25):
                assert await read_one(consumer) == expected
                await asyncio.sleep(6)
            assert group.left == []

    run(main())


def test_a_listener_that_fails_is_heard_and_the_assignment_holds(run: Run) -> None:
    async def main() -> None:
        client, consumer, _ = await start()

        def fail(partitions: list[TopicPartition]) -> None:
            raise LookupError(f"no room for {partitions[0]}")

        async with client:
            await consumer.subscribe(["t"], on_assigned=fail)
            with pytest.raises(LookupError, match="no room for t-0"):
                await read_one(consumer)
            assert await read_one(consumer) == 0

    run(main())


def test_closing_commits_then_tells_then_leaves(run: Run, loop: VirtualLoop) -> None:
    async def main() -> None:
        client, consumer, group = await start(auto_commit=True, auto_commit_interval_ms=10**9)
        seen: list[object] = []

        async def revoked(partitions: list[TopicPartition]) -> None:
            seen.append((partitions, group.committed, list(group.left)))
            await consumer.commit({T0: 7})

        await consumer.subscribe(["t"], on_revoked=revoked)
        assert [await read_one(consumer) for _ in range(3)] == [0, 1, 2]
        await client.close()
        assert seen == [([T0], 3, [])]
        assert (group.committed, group.left) == (7, [-1])
        assert consumer.assignment == []
        with pytest.raises(ClientClosed):
            await consumer.poll()
        assert len(asyncio.all_tasks(loop)) == 1, "nothing is left running"

    run(main())


def test_closing_does_not_wait_for_ever_for_a_coordinator_that_is_gone(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        await consumer.subscribe(["t"])
        await read_one(consumer)
        group.broker.on(ConsumerGroupHeartbeatRequest, lambda _: SILENCE)
        begun = asyncio.get_running_loop().time()
        await client.close()
        assert asyncio.get_running_loop().time() - begun < 6

    run(main())


def test_a_commit_waits_for_the_automatic_one_before_it(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start(auto_commit=True, auto_commit_interval_ms=1_000)
        async with client:
            await consumer.subscribe(["t"])
            while not await consumer.poll(100, max_records=4):
                pass
            await asyncio.sleep(1)
            group.commit_answers = [SILENCE]
            # This poll begins a commit of 4, which the broker never answers and gets again later.
            assert await consumer.poll(100, max_records=2) != {}
            await consumer.commit()
            assert group.commits == [4, 6]

    run(main())


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR])
def test_a_commit_that_can_be_repeated_is(run: Run, code: ErrorCode) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        async with client:
            await consumer.subscribe(["t"])
            await read_one(consumer)
            group.commit_answers = [code, code]
            await consumer.commit()
            assert group.commits == [1]

    run(main())


def test_a_commit_refused_as_fenced_loses_the_partitions_at_once(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        lost: list[TopicPartition] = []
        async with client:
            await consumer.subscribe(["t"], on_lost=lost.extend)
            await read_one(consumer)
            group.commit_answers = [ErrorCode.UNKNOWN_MEMBER_ID]
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert await read_one(consumer) == 0, "as another member would begin"
            assert lost == [T0]

    run(main())


def test_a_refusal_of_who_we_were_says_nothing_of_who_we_are(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        lost: list[TopicPartition] = []
        async with client:
            await consumer.subscribe(["t"], on_lost=lost.extend)
            await read_one(consumer)

            def refuse_late(_: OffsetCommitRequest) -> Message:
                # While the commit was on its way, a heartbeat has brought a new epoch.
                consumer._engine.membership.on_response(heartbeat_response(epoch=2), 0)
                part = OffsetCommitResponsePartition(
                    partition_index=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID
                )
                topic = OffsetCommitResponseTopic(name="t", partitions=[part])
                return OffsetCommitResponse(topics=[topic])

            group.broker.on(OffsetCommitRequest, refuse_late)
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert await read_one(consumer) == 1
            assert lost == []

    run(main())


def test_a_connection_that_breaks_is_made_anew_and_nothing_is_lost(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        told: list[str] = []
        async with client:
            await consumer.subscribe(["t"], on_lost=lambda _: told.append("lost"))
            await read_one(consumer)
            group.hang_ups = 3
            await asyncio.sleep(20)
            assert group.hang_ups == 0
            full = group.broker.requests(ConsumerGroupHeartbeatRequest)
            assert [each.member_epoch for each in full if each.subscribed_topic_names][-1] == 1
            assert await read_one(consumer) == 1
            assert told == []

    run(main())


@pytest.mark.parametrize("change", ["fenced", "revoked"])
def test_records_fetched_ahead_of_a_partition_that_goes_are_dropped(run: Run, change: str) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        async with client:
            await consumer.subscribe(["t"])
            assert await read_one(consumer) == 0
            if change == "fenced":
                group.refuse = ErrorCode.FENCED_MEMBER_EPOCH
            group.assigned = []
            await asyncio.sleep(10)
            assert await consumer.poll(1_000) == {}
            assert consumer.assignment == []
            group.assigned = [0]
            group.committed = 5
            assert await read_one(consumer) == 5

    run(main())


def test_a_poll_that_is_given_up_loses_nothing(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        calls: list[int] = []

        async def slow(_: list[TopicPartition]) -> None:
            calls.append(len(calls))
            if len(calls) == 1:
                await asyncio.sleep(10)

        async with client:
            await consumer.subscribe(["t"], on_assigned=slow)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await consumer.poll(60_000)
            assert await read_one(consumer) == 0
            assert group.left == []

    run(main())


def test_an_error_of_the_membership_comes_out_of_every_poll(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        async with client:
            group.refuse = ErrorCode.UNSUPPORTED_ASSIGNOR
            await consumer.subscribe(["t"])
            for _ in range(2):
                with pytest.raises(Exception, match="unsupported assignor") as refused:
                    await consumer.poll(1_000)
                assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR  # type: ignore[attr-defined]
            await consumer.subscribe(["t"])
            assert await read_one(consumer) == 0

    run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda each: each.subscribe("t"),
        lambda each: each.subscribe([]),
        lambda each: each.subscribe(["t"], pattern="t"),
        lambda each: each.subscribe(pattern=""),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused_at_once(
    run: Run, wrong: Callable[[AsyncConsumer], object]
) -> None:
    async def main() -> None:
        client, consumer, _ = await start()
        async with client:
            coroutine = wrong(consumer)
            assert asyncio.iscoroutine(coroutine)
            with pytest.raises((TypeError, ValueError)):
                await coroutine

    run(main())


def test_answers_without_an_assignment_change_nothing(run: Run) -> None:
    async def main() -> None:
        client, consumer, group = await start()
        async with client:
            await consumer.subscribe(["t"])
            await read_one(consumer)
            group.broker.on(
                ConsumerGroupHeartbeatRequest,
                lambda _: ConsumerGroupHeartbeatResponse(
                    member_epoch=9, heartbeat_interval_ms=1_000
                ),
            )
            await asyncio.sleep(10)
            assert await read_one(consumer) == 1
            await consumer.commit()
            request = group.broker.requests(OffsetCommitRequest)[-1]
            assert request.generation_id_or_member_epoch == 9

    run(main())
