"""Consumers of one group, by all three ways of being a member, on both brokers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.client import (
    EARLIEST,
    AsyncClient,
    ClientSettings,
    CommitFailed,
    CommittedOffset,
    NewTopic,
    NoOffset,
    TopicPartition,
)
from headrace.core.errors import ApiError, ErrorCode
from tests.integration.client.members import (
    PATIENCE_SECONDS,
    PROTOCOLS,
    SESSION_MS,
    Crew,
    changes,
    fill,
    new_settings,
    new_topic,
    refusal,
    told_to,
)
from tests.support.brokers import BrokerProcess

Story = Callable[[AsyncClient, str], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> str:
    """Eager and cooperative in the classic protocol, and KIP-848."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def tell(broker: BrokerProcess, protocol: str) -> Tell:
    """Runs a story with a client and a protocol."""

    async def with_client(story: Story) -> None:
        settings = ClientSettings(broker.bootstrap_servers, metadata_age_ms_max=1_000)
        async with AsyncClient(settings) as client, asyncio.timeout(PATIENCE_SECONDS):
            await story(client, protocol)

    return lambda story: asyncio.run(with_client(story))


def test_two_members_share_the_work_and_one_takes_over_when_the_other_leaves(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 4, records=200)
        settings = new_settings(protocol)
        crew = Crew()
        first = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.has_read(200))
        await first.commit()
        second = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.is_divided(4))
        await fill(client, topic, 400)
        await crew.until(lambda: crew.has_read(400))
        for member in crew.members:
            await member.commit()
        crew.dismiss(first)
        await first.close()
        await crew.until(lambda: len(second.assignment) == 4)
        await fill(client, topic, 600)
        await crew.until(lambda: crew.has_read(600))
        assert crew.values[b"0"] == 3, "everything once, as everything was committed in time"
        assert crew.values[b"599"] == 1

    tell(story)


def test_a_member_that_vanishes_is_replaced_after_its_session(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 4, records=100)
        settings = new_settings(protocol)
        crew = Crew()
        async with AsyncClient(client.settings) as other:
            doomed = await crew.enlist(other.consumer(settings), topic)
            survivor = await crew.enlist(client.consumer(settings), topic)
            await crew.until(lambda: crew.is_divided(4) and crew.has_read(100))
            await survivor.commit()
            crew.values.clear()
            crew.dismiss(doomed)
            # No farewell: what a crash leaves behind is a connection that ends.
            await doomed._engine.close()
            doomed._is_closed = True
        await crew.until(lambda: len(survivor.assignment) == 4)
        await crew.until(lambda: crew.has_read(50))
        assert set(crew.values.values()) == {1}, "only what the other had not committed"

    tell(story)


def test_partitions_that_stay_are_read_on_without_a_break(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 4, records=400)
        settings = new_settings(protocol)
        crew = Crew()
        first = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.has_read(400))
        await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.is_divided(4))
        revoked = told_to(crew.told, 0, "revoked")
        kept = [tp.partition for tp in first.assignment]
        if protocol == "eager":
            assert revoked == [0, 1, 2, 3]
            return
        assert sorted([*revoked, *kept]) == [0, 1, 2, 3]
        # Nothing was committed: what moved is read again, what stayed is not.
        await crew.until(lambda: sum(crew.values.values()) == 600)
        assert [await first.position(tp) for tp in first.assignment] == [100, 100]

    tell(story)


def test_listeners_may_commit_and_seek(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2, records=20)
        settings = new_settings(protocol)
        consumer = client.consumer(settings)

        async def assigned(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 7)

        async def revoked(_: list[TopicPartition]) -> None:
            await consumer.commit()

        await consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
        found: dict[TopicPartition, list[int]] = {}
        while len(found) < 2 or any(len(each) < 3 for each in found.values()):
            for where, records in (await consumer.poll(100)).items():
                found.setdefault(where, []).extend(record.offset for record in records)
        assert sorted(found.values()) == [[7, 8, 9], [7, 8, 9]]
        second = client.consumer(settings)
        await second.subscribe([topic])
        while len(second.assignment) != 1:
            await consumer.poll(20)
            await second.poll(20)
        assert await second.position(second.assignment[0]) == 10

    tell(story)


def test_a_commit_is_what_the_next_member_starts_from(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1, records=10)
        where = TopicPartition(topic, 0)
        settings = new_settings(protocol)
        async with client.consumer(settings) as first:
            await first.subscribe([topic])
            while not await first.poll(100, max_records=4):
                pass
            assert await first.committed() == {}
            await first.commit()
            assert (await first.committed())[where] == CommittedOffset(4, 0, "")
            await first.commit({where: CommittedOffset(3, leader_epoch=0, metadata="why")})
            assert (await first.committed([where]))[where] == CommittedOffset(3, 0, "why")
        async with client.consumer(settings) as second:
            await second.subscribe([topic])
            record = await anext(second)
            assert (record.offset, record.value) == (3, b"3")

    tell(story)


def test_an_automatic_commit_covers_what_was_handed_out(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1, records=10)
        where = TopicPartition(topic, 0)
        settings = new_settings(protocol, auto_commit=True, auto_commit_interval_ms=50)
        consumer = client.consumer(settings)
        await consumer.subscribe([topic])
        while not await consumer.poll(100, max_records=6):
            pass
        committed = consumer.committed
        while (await committed()).get(where) != CommittedOffset(6, 0):
            await consumer.poll(20, max_records=0)
        while not await consumer.poll(100, max_records=3):
            pass
        await consumer.close()
        assert (await client.admin.committed_offsets(settings.group_id))[where].offset == 9

    tell(story)


def test_a_reset_of_none_is_an_error_and_latest_begins_at_the_end(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1, records=10)
        async with client.consumer(new_settings(protocol, offset_reset="none")) as strict:
            await strict.subscribe([topic])
            assert isinstance(await refusal(strict), NoOffset)
            strict.seek(TopicPartition(topic, 0), 8)
            assert (await anext(strict)).offset == 8
        async with client.consumer(new_settings(protocol, offset_reset="latest")) as late:
            await late.subscribe([topic])
            while not late.assignment:
                await late.poll(20)
            assert await late.position(TopicPartition(topic, 0)) == 10

    tell(story)


def test_pause_seek_and_resume_work_as_in_a_reader(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2, records=20)
        async with client.consumer(new_settings(protocol)) as consumer:
            await consumer.subscribe([topic])
            while len(consumer.assignment) != 2:
                await consumer.poll(20, max_records=0)
            paused, other = consumer.assignment
            consumer.pause(paused)
            found: list[int] = []
            while len(found) < 10:
                polled = await consumer.poll(100)
                assert paused not in polled
                found += [record.offset for record in polled.get(other, [])]
            consumer.resume(paused)
            consumer.seek(paused, 9)
            consumer.seek(other, EARLIEST)
            found = []
            while len(found) < 11:
                for records in (await consumer.poll(100)).values():
                    found += [record.offset for record in records]
            assert sorted(found) == sorted([*range(10), 9])

    tell(story)


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 4)
        crew = Crew()
        static = new_settings(protocol, group_instance_id="one", session_timeout_ms=30_000)
        plain = new_settings(protocol, group_id=static.group_id)
        first = await crew.enlist(client.consumer(static), topic)
        await crew.enlist(client.consumer(plain), topic)
        await crew.until(lambda: crew.is_divided(4))
        before = first.assignment
        crew.dismiss(first)
        await first.close()
        crew.told.clear()
        again = client.consumer(static)
        await again.subscribe([topic])
        crew.members.append(again)
        await crew.until(lambda: crew.is_divided(4))
        assert again.assignment == before
        assert crew.told == [], "the other heard nothing"

    tell(story)


def test_the_older_of_two_with_one_instance_id_is_put_out(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1)
        settings = new_settings(protocol, group_instance_id="one")
        first, second = client.consumer(settings), client.consumer(settings)
        await first.subscribe([topic])
        while not first.assignment:
            await first.poll(20)
        await second.subscribe([topic])
        # The classic protocol fences the older, KIP-848 refuses the newer.
        loser = second if protocol == "consumer" else first
        refused = await refusal(first, second)
        codes = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
        assert refused.code is codes[loser is second]
        assert loser.assignment == []

    tell(story)


def test_a_program_that_stays_away_too_long_loses_its_partitions(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2, records=10)
        settings = new_settings(protocol, max_poll_interval_ms=500)
        crew = Crew()
        consumer = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.has_read(10))
        while consumer.is_member:
            await asyncio.sleep(0.01)
        with pytest.raises(CommitFailed):
            await consumer.commit()
        described = await client.admin.describe_groups([settings.group_id])
        assert described[settings.group_id].members == []
        await crew.until(lambda: sum(crew.values.values()) == 20)
        assert changes(crew.told) == ["assigned", "lost", "assigned"]
        await consumer.commit()

    tell(story)


def test_a_program_may_work_longer_than_a_session(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2, records=10)
        crew = Crew()
        settings = new_settings(protocol)
        consumer = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.has_read(10))
        loop = asyncio.get_running_loop()
        work_done = loop.time() + SESSION_MS * 1.5 / 1000
        while loop.time() < work_done:
            described = await client.admin.describe_groups([settings.group_id])
            assert len(described[settings.group_id].members) == 1
        await consumer.commit()
        assert changes(crew.told) == ["assigned"]

    tell(story)


def test_new_partitions_are_given_out(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1)
        crew = Crew()
        await crew.enlist(client.consumer(new_settings(protocol)), topic)
        await crew.until(lambda: crew.is_divided(1))
        await client.admin.create_partitions({topic: 3})
        await crew.until(lambda: crew.is_divided(3))

    tell(story)


def test_a_topic_may_be_created_after_it_was_subscribed_to(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1)
        later = f"{topic}-later"
        consumer = client.consumer(new_settings(protocol))
        await consumer.subscribe([topic, later])
        while len(consumer.assignment) != 1:
            await consumer.poll(20)
        await client.admin.create_topics([NewTopic(later, partitions=1)])
        while len(consumer.assignment) != 2:
            await consumer.poll(20)

    tell(story)


def test_a_topic_that_is_deleted_disturbs_nobody(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic, doomed = await new_topic(client, 1), await new_topic(client, 1, records=5)
        settings = new_settings(protocol, auto_commit=True, auto_commit_interval_ms=10)
        consumer = client.consumer(settings)
        await consumer.subscribe([topic, doomed])
        while len(consumer.assignment) != 2:
            await consumer.poll(20)
        await client.admin.delete_topics([doomed])
        while len(consumer.assignment) != 1:
            await consumer.poll(20)
        await fill(client, topic, 10)
        assert (await anext(consumer)).topic == topic

    tell(story)


def test_a_pattern_finds_the_topics_whose_whole_name_matches(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2)
        consumer = client.consumer(new_settings(protocol))
        await consumer.subscribe(pattern=f"{topic[:-1]}.")
        while len(consumer.assignment) != 2:
            await consumer.poll(20)
        assert {each.topic for each in consumer.assignment} == {topic}
        await consumer.subscribe(pattern=topic[1:])
        while consumer.assignment:
            await consumer.poll(20)

    tell(story)


def test_partitions_assigned_by_hand_need_no_membership(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2, records=10)
        where = TopicPartition(topic, 1)
        settings = new_settings(protocol)
        consumer = client.consumer(settings)
        consumer.assign([where])
        assert (await anext(consumer)).partition == 1
        await consumer.commit()
        with pytest.raises(ValueError, match="by hand"):
            await consumer.subscribe([topic])
        await consumer.close()
        admin = client.admin
        assert (await admin.committed_offsets(settings.group_id))[where].offset == 1

    tell(story)


def test_unsubscribing_leaves_and_a_new_subscription_joins_again(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2)
        settings = new_settings(protocol)
        crew = Crew()
        consumer = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.is_divided(2))
        await consumer.unsubscribe()
        assert consumer.assignment == []
        assert crew.told[-1] == (0, "revoked", [0, 1])
        described = await client.admin.describe_groups([settings.group_id])
        assert described[settings.group_id].members == []
        await consumer.subscribe([topic])
        await crew.until(lambda: crew.is_divided(2))

    tell(story)


def test_lag_and_members_are_seen_from_outside(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 2, records=20)
        settings = new_settings(protocol)
        group, admin = settings.group_id, client.admin
        consumer = client.consumer(settings)
        await consumer.subscribe([topic])
        while len(consumer.assignment) != 2:
            await consumer.poll(20, max_records=0)
        await consumer.commit({TopicPartition(topic, 0): 7})
        lags = await admin.group_lag(group)
        assert [(each.committed, each.end, each.lag) for each in lags] == [
            (7, 10, 3),
            (None, 10, None),
        ]
        assert {each.member.member_id for each in lags if each.member} == {consumer.member_id}
        for refused in (
            admin.alter_offsets(group, {TopicPartition(topic, 0): 1}),
            admin.delete_groups([group]),
            admin.delete_offsets(group, [TopicPartition(topic, 0)]),
        ):
            with pytest.raises(ApiError, match=r"has members|are subscribed"):
                await refused
        listed = {each.group_id: each for each in await admin.list_groups()}
        kind = "consumer" if protocol == "consumer" else "classic"
        assert (listed[group].state, listed[group].group_type) == ("Stable", kind)
        await consumer.close()
        await admin.alter_offsets(group, {TopicPartition(topic, 1): 4})
        assert [each.lag for each in await admin.group_lag(group)] == [3, 6]
        await admin.delete_offsets(group, [TopicPartition(topic, 0)])
        both = await admin.group_lags([group, "no such group"], members=False)
        assert [each.lag for each in both[group]] == [6]
        assert both["no such group"] == []
        await admin.delete_groups([group])
        assert group not in {each.group_id for each in await admin.list_groups()}

    tell(story)


def test_a_member_can_be_put_out_and_comes_back(tell: Tell) -> None:
    async def story(client: AsyncClient, protocol: str) -> None:
        topic = await new_topic(client, 1)
        settings = new_settings(protocol)
        crew = Crew()
        consumer = await crew.enlist(client.consumer(settings), topic)
        await crew.until(lambda: crew.is_divided(1))
        await client.admin.remove_members(settings.group_id, member_ids=[consumer.member_id])
        await crew.until(lambda: changes(crew.told).count("assigned") == 2)
        assert (0, "lost", [0]) in crew.told

    tell(story)


def test_the_broker_side_assignor_can_be_chosen_and_a_wrong_one_is_refused(
    broker: BrokerProcess,
) -> None:
    async def story() -> None:
        async with AsyncClient(broker.bootstrap_servers) as client:
            topic = await new_topic(client, 1)
            settings = new_settings("consumer", server_assignor="range")
            consumer = client.consumer(settings)
            await consumer.subscribe([topic])
            while not consumer.assignment:
                await consumer.poll(20)
            described = await client.admin.describe_groups([settings.group_id])
            assert described[settings.group_id].assignor == "range"
            wrong = client.consumer(new_settings("consumer", server_assignor="nobody"))
            await wrong.subscribe([topic])
            assert (await refusal(wrong)).code is ErrorCode.UNSUPPORTED_ASSIGNOR
            bad = client.consumer(new_settings("consumer"))
            await bad.subscribe(pattern="(")
            assert (await refusal(bad)).code is ErrorCode.INVALID_REGULAR_EXPRESSION

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))
