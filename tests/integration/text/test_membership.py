"""A member at the text listener whose partitions go and come back while it is silent."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from headrace.client import NewTopic, TopicPartition
from headrace.gateway import Gateway, GatewayMember, OutRecord
from headrace.text.membership import TextMembership
from headrace.text.tokenizer import Tokenizer
from tests.support.gateways import gateway_of

T = TypeVar("T")
SECONDS = 20


class Lines:
    """Counts what a person would have seen."""

    def __init__(self) -> None:
        self.messages = 0

    async def send(self, data: bytes) -> None:
        self.messages += data.count(b"MESSAGE ")

    async def unless_input(self, work: Coroutine[Any, Any, T]) -> T | None:
        return await work


async def until_it_has(member: GatewayMember, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(member.assignment) != count:
            await member.wait_for_change(200)


async def read_all_as_another(gateway: Gateway, first: GatewayMember) -> TopicPartition:
    """Another member takes one of two partitions, reads it to its end, commits and leaves."""
    async with await gateway.join("g", ["orders"]) as other:
        await until_it_has(other, 1)
        await until_it_has(first, 1)
        [where] = other.assignment
        async with asyncio.timeout(SECONDS):
            while await other.position(where) < 20:
                await other.poll(500)
        await other.commit({where: 20})
    await until_it_has(first, 2)
    return where


async def test_a_partition_that_went_and_came_back_is_not_set_back(tmp_path: Path) -> None:
    async with gateway_of("local", tmp_path) as gateway:
        await gateway.admin.create_topics([NewTopic("orders", 2)])
        every = [OutRecord(b"v", None, number % 2) for number in range(20)]
        await gateway.produce("orders", every)
        membership = TextMembership(gateway)
        await membership.join(Tokenizer(b"g orders"))
        member = membership._member
        assert member is not None
        lines = Lines()
        async with asyncio.timeout(SECONDS):
            while lines.messages < 20:
                await membership.poll(Tokenizer(b"WAIT 200"), lines)
        # Ten of each partition are given. More come, and another member reads them.
        await gateway.produce("orders", every)
        moved = await read_all_as_another(gateway, member)
        assert (await gateway.offsets("g"))[moved].offset == 20
        await membership.poll(Tokenizer(b"WAIT 0"), lines)
        assert (await gateway.offsets("g"))[moved].offset == 20
        # What stayed ours all the time is committed as ever.
        assert len(await gateway.offsets("g")) == 2
        await membership.end()
