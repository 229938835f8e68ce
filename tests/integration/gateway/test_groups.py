"""Groups through the gateway, the same in both of its forms."""

import asyncio
import uuid

import pytest

from headrace.client import EARLIEST, LATEST, NewTopic, TopicPartition
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.gateway import Gateway, GatewayMember, GroupNotEmpty, MemberSettings, OutRecord

SECONDS = 20


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


async def filled(gateway: Gateway, partitions: int, each: int = 3) -> list[TopicPartition]:
    """A topic `orders` with some records in every partition."""
    await gateway.admin.create_topics([NewTopic("orders", partitions)])
    records = [
        OutRecord(b"%d-%d" % (place, number), None, place)
        for place in range(partitions)
        for number in range(each)
    ]
    await gateway.produce("orders", records)
    return [TopicPartition("orders", place) for place in range(partitions)]


async def until_assigned(member: GatewayMember, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(member.assignment) != count:
            await member.wait_for_change(1_000)


async def drain(member: GatewayMember, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(SECONDS):
        while len(found) < count:
            batch = await member.poll(1_000)
            found += [record.value for records in batch.values() for record in records]
    return sorted(found, key=lambda value: value or b"")


async def test_a_member_reads_a_topic_from_the_beginning(gateway: Gateway, group: str) -> None:
    await filled(gateway, 2)
    async with await gateway.join(group, ["orders"]) as member:
        assert await drain(member, 6) == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-1", b"1-2"]


async def test_two_members_share_and_one_takes_over(gateway: Gateway, group: str) -> None:
    every = await filled(gateway, 4, each=0)
    first = await gateway.join(group, ["orders"])
    await until_assigned(first, 4)
    second = await gateway.join(group, ["orders"])
    # Nobody polls: members follow the group by themselves.
    await until_assigned(second, 2)
    await until_assigned(first, 2)
    assert sorted(first.assignment + second.assignment) == every
    await second.leave()
    await until_assigned(first, 4)
    await gateway.produce("orders", [OutRecord(b"v", None, place) for place in range(4)])
    assert await drain(first, 4) == [b"v"] * 4
    await first.leave()


async def test_what_is_committed_is_not_read_again(gateway: Gateway, group: str) -> None:
    [where] = await filled(gateway, 1, each=5)
    async with await gateway.join(group, ["orders"]) as member:
        async with asyncio.timeout(SECONDS):
            while not (batch := await member.poll(1_000, 2)):
                pass
        assert [record.offset for record in batch[where]] == [0, 1]
        await member.commit()
        assert (await member.committed())[where].offset == 2
    assert (await gateway.offsets(group))[where].offset == 2
    async with await gateway.join(group, ["orders"]) as member:
        assert await drain(member, 3) == [b"0-2", b"0-3", b"0-4"]


async def test_a_member_that_leaves_without_a_commit_leaves_its_records(
    gateway: Gateway, group: str
) -> None:
    await filled(gateway, 1)
    for _ in range(2):
        async with await gateway.join(group, ["orders"]) as member:
            assert await drain(member, 3) == [b"0-0", b"0-1", b"0-2"]


async def test_a_member_may_seek(gateway: Gateway, group: str) -> None:
    [where] = await filled(gateway, 1)
    async with await gateway.join(group, ["orders"]) as member:
        await drain(member, 3)
        member.seek(where, 1)
        assert await drain(member, 2) == [b"0-1", b"0-2"]
        assert await member.position(where) == 3


async def test_a_member_may_choose_partitions_by_hand(gateway: Gateway, group: str) -> None:
    every = await filled(gateway, 3)
    async with await gateway.join(group) as member:
        await member.assign(every[1:2])
        assert await drain(member, 3) == [b"1-0", b"1-1", b"1-2"]
        await member.commit()
    assert set(await gateway.offsets(group)) == {every[1]}


async def test_a_member_may_subscribe_to_a_pattern(gateway: Gateway, group: str) -> None:
    await filled(gateway, 1)
    async with await gateway.join(group, pattern="ord.*") as member:
        assert len(await drain(member, 3)) == 3


async def test_a_member_may_begin_at_the_end(gateway: Gateway, group: str) -> None:
    await filled(gateway, 1)
    settings = MemberSettings(offset_reset="latest")
    async with await gateway.join(group, ["orders"], settings=settings) as member:
        await until_assigned(member, 1)
        assert await member.position(TopicPartition("orders", 0)) == 3
        await gateway.produce("orders", [OutRecord(b"new")])
        assert await drain(member, 1) == [b"new"]


async def test_offsets_are_committed_and_reset_from_outside(gateway: Gateway, group: str) -> None:
    zero, one = await filled(gateway, 2)
    assert await gateway.offsets(group) == {}
    await gateway.commit(group, {zero: 2})
    assert {w: c.offset for w, c in (await gateway.offsets(group)).items()} == {zero: 2}
    lag = {
        each.partition: (each.committed, each.end, each.lag) for each in await gateway.lag(group)
    }
    assert lag[zero] == (2, 3, 1)
    assert await gateway.reset(group, {zero: EARLIEST, one: LATEST}) == {zero: 0, one: 3}
    assert {w: c.offset for w, c in (await gateway.offsets(group)).items()} == {zero: 0, one: 3}


async def test_a_reset_stays_within_what_a_partition_holds(gateway: Gateway, group: str) -> None:
    zero, one = await filled(gateway, 2)
    await gateway.admin.delete_records({zero: 2})
    assert await gateway.reset(group, {zero: 0, one: 999_999}) == {zero: 2, one: 3}
    assert {w: c.offset for w, c in (await gateway.offsets(group)).items()} == {zero: 2, one: 3}


async def test_a_group_with_members_is_not_moved_from_outside(gateway: Gateway, group: str) -> None:
    [where] = await filled(gateway, 1)
    async with await gateway.join(group, ["orders"]) as member:
        await until_assigned(member, 1)
        with pytest.raises(GroupNotEmpty):
            await gateway.reset(group, {where: EARLIEST})
        with pytest.raises(GroupNotEmpty):
            await gateway.commit(group, {where: 1})
    await gateway.commit(group, {where: 1})


async def test_offsets_of_partitions_that_are_not_there_are_refused(
    gateway: Gateway, group: str
) -> None:
    await filled(gateway, 1)
    with pytest.raises(HeadraceError) as refused:
        await gateway.commit(group, {TopicPartition("orders", 7): 1})
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_groups_are_listed(gateway: Gateway, group: str) -> None:
    [where] = await filled(gateway, 1)
    await gateway.commit(group, {where: 1})
    assert group in {each.group_id for each in await gateway.admin.list_groups()}
