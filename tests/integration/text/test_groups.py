"""Groups at the text listener: two windows share a topic."""

import asyncio

from tests.support.text_client import TextClient

SECONDS = 20


def values(lines: list[str]) -> list[str]:
    return [line.split(":", 1)[1] for line in lines if line.startswith("MESSAGE")]


async def poll_until(client: TextClient, count: int) -> list[str]:
    """POLL until so many messages have come; every line but the closing ones."""
    found: list[str] = []
    async with asyncio.timeout(SECONDS):
        while len(values(found)) < count:
            found += await client.ok("POLL WAIT 500")
    return found


async def poll_until_assigned(client: TextClient, count: int) -> list[str]:
    async with asyncio.timeout(SECONDS):
        while True:
            for line in await client.ok("POLL WAIT 200"):
                if line.startswith("ASSIGNED") and line.count(":") == count:
                    return line.split(" ")[1].split(",")


async def test_a_member_gets_messages_and_commits_them_with_the_next_poll(
    client: TextClient, topic: str, group: str
) -> None:
    for number in range(3):
        await client.ok(f"PUBLISH {topic} {number}")
    assert await client.ask(f"JOIN {group} {topic}") == [f"OK partitions={topic}:0"]
    assert values(await poll_until(client, 3)) == ["0", "1", "2"]
    assert await client.ok(f"OFFSETS {group}") == [f"OFFSET {topic} 0 committed=- end=3 lag=-"]
    assert await client.ask("POLL WAIT 0") == ["OK count=0"]
    assert await client.ok(f"OFFSETS {group}") == [f"OFFSET {topic} 0 committed=3 end=3 lag=0"]


async def test_two_windows_share_a_topic_and_one_closes(
    client: TextClient, address: tuple[str, int], topic: str, group: str
) -> None:
    await client.ok(f"CREATE {topic} PARTITIONS 4")
    await client.ok(f"JOIN {group} {topic}")
    async with TextClient(*address) as other:
        [joined] = await other.ask(f"JOIN {group} {topic}")
        theirs = joined.removeprefix("OK partitions=").split(",")
        ours = await poll_until_assigned(client, 2)
        assert sorted(ours + theirs) == [f"{topic}:{place}" for place in range(4)]
        for place in range(4):
            await client.ok(f"PUBLISH {topic} PARTITION {place} v{place}")
        mine = values(await poll_until(client, 2))
        yours = values(await poll_until(other, 2))
        assert sorted(mine + yours) == ["v0", "v1", "v2", "v3"]
    # The other window is closed, without having committed what it was given.
    found = await poll_until(client, 2)
    assert sorted(values(found)) == sorted(yours)


async def test_leave_commits_and_frees_the_connection_for_another_group(
    client: TextClient, topic: str, group: str
) -> None:
    await client.ok(f"PUBLISH {topic} v")
    await client.ok(f"JOIN {group} {topic}")
    [refused] = await client.ask(f"JOIN {group}-2 {topic}")
    assert "LEAVE first" in refused
    await poll_until(client, 1)
    await client.ok("LEAVE")
    assert await client.ok(f"OFFSETS {group}") == [f"OFFSET {topic} 0 committed=1 end=1 lag=0"]
    await client.ok(f"JOIN {group}-2 {topic}")
    assert values(await poll_until(client, 1)) == ["v"]


async def test_offsets_are_committed_reset_and_read_from(
    client: TextClient, topic: str, group: str
) -> None:
    await client.ok(f"CREATE {topic} PARTITIONS 2")
    for number in range(6):
        await client.ok(f"PUBLISH {topic} {number}")
    await client.ok(f"COMMIT {group} {topic} 0 2")
    assert await client.ok(f"CONSUME {topic} PARTITION 0 FROM GROUP {group}") == [
        f"MESSAGE {topic} 0 2 :4"
    ]
    assert await client.ask(f"RESET {group} {topic} TO END") == [
        f"OFFSET {topic} 0 committed=3",
        f"OFFSET {topic} 1 committed=3",
        "OK count=2",
    ]
    assert await client.ok(f"CONSUME {topic} FROM GROUP {group}") == []
    assert await client.ok(f"RESET {group} {topic} PARTITION 1 TO 1") == [
        f"OFFSET {topic} 1 committed=1"
    ]
    assert sorted(await client.ok(f"OFFSETS {group} {topic}")) == [
        f"OFFSET {topic} 0 committed=3 end=3 lag=0",
        f"OFFSET {topic} 1 committed=1 end=3 lag=2",
    ]
    assert f"GROUP {group} state=Empty type=classic" in await client.ok("GROUPS")


async def test_a_group_with_members_is_not_reset(
    client: TextClient, address: tuple[str, int], topic: str, group: str
) -> None:
    await client.ok(f"PUBLISH {topic} v")
    await client.ok(f"JOIN {group} {topic}")
    async with TextClient(*address) as other:
        [refused] = await other.ask(f"RESET {group} {topic} TO BEGINNING")
        assert refused.startswith("ERR NON_EMPTY_GROUP")
        assert "stop them first" in refused
        [refused] = await other.ask(f"COMMIT {group} {topic} 0 1")
        assert refused.startswith("ERR NON_EMPTY_GROUP")
    # A member commits for its own group.
    await client.ok(f"COMMIT {group} {topic} 0 1")
    await client.ok("LEAVE")
    assert await client.ok(f"RESET {group} {topic} TO BEGINNING") == [
        f"OFFSET {topic} 0 committed=0"
    ]


async def test_a_group_is_not_reset_beyond_the_ends(
    client: TextClient, topic: str, group: str
) -> None:
    for number in range(3):
        await client.ok(f"PUBLISH {topic} {number}")
    assert await client.ok(f"RESET {group} {topic} PARTITION 0 TO 999999") == [
        f"OFFSET {topic} 0 committed=3 instead_of=999999"
    ]
    assert await client.ok(f"OFFSETS {group}") == [f"OFFSET {topic} 0 committed=3 end=3 lag=0"]
    assert await client.ok(f"RESET {group} {topic} PARTITION 0 TO 2") == [
        f"OFFSET {topic} 0 committed=2"
    ]


async def test_a_commit_beyond_the_end_is_shown_as_such(
    client: TextClient, topic: str, group: str
) -> None:
    await client.ok(f"PUBLISH {topic} v")
    await client.ok(f"COMMIT {group} {topic} 0 12345")
    assert await client.ok(f"OFFSETS {group}") == [
        f"OFFSET {topic} 0 committed=12345 end=1 lag=0 beyond_end=12344"
    ]
    assert await client.ok(f"RESET other-{group} {topic} TO GROUP {group}") == [
        f"OFFSET {topic} 0 committed=1 instead_of=12345"
    ]
