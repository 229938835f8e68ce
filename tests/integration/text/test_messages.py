"""PUBLISH and CONSUME, in both forms of the listener."""

import pytest

from tests.support.text_client import TextClient


async def test_a_message_goes_in_and_comes_out(client: TextClient, topic: str) -> None:
    assert await client.ask(f"PUBLISH {topic} hello world") == ["OK partition=0 offset=0"]
    assert await client.ask(f"CONSUME {topic}") == [
        f"MESSAGE {topic} 0 0 :hello world",
        "OK count=1 next=0:1",
    ]


async def test_keys_headers_and_times_come_out_as_they_went_in(
    client: TextClient, topic: str
) -> None:
    said = 'AT 1500 KEY "two words" HEADER a=b HEADER "c d= " :KEY of it'
    await client.ok(f"PUBLISH {topic} {said}")
    assert await client.ok(f"CONSUME {topic} TIMES") == [f"MESSAGE {topic} 0 0 {said}"]


async def test_a_payload_may_have_lines(client: TextClient, topic: str) -> None:
    await client.ok(f"PUBLISH {topic} KEY k LENGTH 12\nhello\nOK you")
    client.write(f"CONSUME {topic}\n")
    found = [await client.line() for _ in range(4)]
    assert found == [
        f"MESSAGE {topic} 0 0 KEY k LENGTH 12", "hello", "OK you", "OK count=1 next=0:1",
    ]  # fmt: skip


async def test_lines_sent_together_are_answered_in_order(client: TextClient, topic: str) -> None:
    other = f"{topic}-other"
    lines = [
        f"PUBLISH {topic} a",
        f"PUBLISH {other} b",
        f"PUBLISH {topic} PARTITION 9 c",
        f"PUBLISH {topic} d",
        "PUBLISH",
        f"PUBLISH {other} e",
        "NONSENSE",
        f"PUBLISH {topic} f",
    ]
    client.write("".join(f"{line}\n" for line in lines))
    answers = [await client.line() for _ in lines]
    words = [" ".join(answer.split(" ")[:3]) for answer in answers]
    assert words == [
        "OK partition=0 offset=0",
        "OK partition=0 offset=0",
        "ERR UNKNOWN_TOPIC_OR_PARTITION topic",
        "OK partition=0 offset=1",
        "ERR INVALID_REQUEST write",
        "OK partition=0 offset=1",
        "ERR INVALID_REQUEST 'NONSENSE'",
        "OK partition=0 offset=2",
    ]
    assert len(await client.ok(f"CONSUME {topic}")) == 3


async def test_many_lines_at_once_are_neither_lost_nor_mixed_up(
    client: TextClient, topic: str
) -> None:
    count = 20_000
    await client.ok(f"CREATE {topic} PARTITIONS 2")
    client.write(b"".join(b"PUBLISH %b %d\n" % (topic.encode(), n) for n in range(count)))
    answers = [await client.line() for _ in range(count)]
    assert answers[0] == "OK partition=0 offset=0"
    assert answers[-1] == f"OK partition=1 offset={count // 2 - 1}"
    found = await client.ok(f"CONSUME {topic}")
    seen: dict[str, list[int]] = {"0": [], "1": []}
    for line in found:
        _, _, partition, offset, value = line.split(" ")
        assert int(offset) == len(seen[partition])
        seen[partition].append(int(value[1:]))
    assert seen == {"0": list(range(0, count, 2)), "1": list(range(1, count, 2))}


@pytest.mark.parametrize(
    ("options", "values", "following"),
    [
        ("FROM 3", ["3", "4"], "0:5"),
        ("FROM 1 LIMIT 2", ["1", "2"], "0:3"),
        ("LIMIT 0", [], "0:0"),
        ("FROM END", [], "0:5"),
        ("FROM 5", [], "0:5"),
        ("FROM @2000", ["2", "3", "4"], "0:5"),
        ("FROM 1970-01-01T00:00:04Z", ["4"], "0:5"),
        ("FROM -1s", [], "0:5"),
        ("from beginning limit 1", ["0"], "0:1"),
    ],
)
async def test_reading_begins_and_ends_where_it_is_told(
    client: TextClient, topic: str, options: str, values: list[str], following: str
) -> None:
    for number in range(5):
        await client.ok(f"PUBLISH {topic} AT {1000 * number} {number}")
    *messages, last = await client.ask(f"CONSUME {topic} {options}")
    assert [message.split(":", 1)[1] for message in messages] == values
    assert last == f"OK count={len(values)} next={following}"


async def test_partitions_are_read_all_or_one(client: TextClient, topic: str) -> None:
    await client.ok(f"CREATE {topic} PARTITIONS 3")
    for place in range(3):
        await client.ok(f"PUBLISH {topic} PARTITION {place} v{place}")
    assert len(await client.ok(f"CONSUME {topic}")) == 3
    assert await client.ok(f"CONSUME {topic} PARTITION 1") == [f"MESSAGE {topic} 1 0 :v1"]
    [last] = await client.ask(f"CONSUME {topic} FROM 1")
    assert last.startswith("ERR INVALID_REQUEST an offset is one of a partition")


async def test_followers_see_what_comes_until_they_write(
    client: TextClient, address: tuple[str, int], topic: str
) -> None:
    await client.ok(f"PUBLISH {topic} old")
    async with TextClient(*address) as streaming:
        streaming.write(f"CONSUME {topic} FOLLOW\n")
        assert await streaming.line() == f"MESSAGE {topic} 0 0 :old"
        for number in range(1, 4):
            await client.ok(f"PUBLISH {topic} {number}")
            assert await streaming.line() == f"MESSAGE {topic} 0 {number} :{number}"
        assert await streaming.ask("STOP") == ["OK count=4 next=0:4"]
        assert await streaming.line() == "OK"
        assert (await streaming.ask("TOPICS"))[-1].startswith("OK")


async def test_a_follower_with_a_limit_stops_by_itself(client: TextClient, topic: str) -> None:
    client.write(f"PUBLISH {topic} a\nPUBLISH {topic} b\nPUBLISH {topic} c\n")
    for _ in range(3):
        await client.line()
    client.write(f"CONSUME {topic} FOLLOW LIMIT 2\n")
    assert [await client.line() for _ in range(3)] == [
        f"MESSAGE {topic} 0 0 :a",
        f"MESSAGE {topic} 0 1 :b",
        "OK count=2 next=0:2",
    ]


async def test_topics_are_made_listed_and_described(client: TextClient, topic: str) -> None:
    assert await client.ask(f"CREATE {topic} PARTITIONS 2 CONFIG retention.ms=60000") == [
        "OK partitions=2"
    ]
    assert f"TOPIC {topic} partitions=2" in await client.ok("TOPICS")
    await client.ok(f"PUBLISH {topic} PARTITION 1 v")
    assert await client.ask(f"DESCRIBE {topic}") == [
        f"PARTITION {topic} 0 leader=0 start=0 end=0",
        f"PARTITION {topic} 1 leader=0 start=0 end=1",
        "OK count=2",
    ]
    [again] = await client.ask(f"CREATE {topic}")
    assert again.startswith("ERR TOPIC_ALREADY_EXISTS")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("CONSUME nowhere-at-all", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("CONSUME", "INVALID_REQUEST"),
        ("CONSUME {topic} PARTITION 5", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("CONSUME {topic} FROM 99", "OFFSET_OUT_OF_RANGE"),
        ("CONSUME {topic} FROM 99 FOLLOW", "OFFSET_OUT_OF_RANGE"),
        ("CONSUME {topic} FROM yesterday", "INVALID_REQUEST"),
        ("CONSUME {topic} SIDEWAYS", "INVALID_REQUEST"),
        ("PUBLISH bad/name v", "INVALID_TOPIC_EXCEPTION"),
        ("DESCRIBE nowhere-at-all", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("CREATE bad/name", "INVALID_TOPIC_EXCEPTION"),
        ("CREATE x PARTITIONS 0", "INVALID_PARTITIONS"),
        ("CREATE x CONFIG nonsense=1", "INVALID_CONFIG"),
        ("POLL", "UNKNOWN_MEMBER_ID"),
        ("TOPICS please", "INVALID_REQUEST"),
    ],
)
async def test_refusals_have_a_code_and_the_conversation_goes_on(
    client: TextClient, topic: str, line: str, code: str
) -> None:
    await client.ok(f"PUBLISH {topic} v")
    [refusal] = await client.ask(line.format(topic=topic))
    assert refusal.split(" ")[:2] == ["ERR", code]
    assert len(refusal.split(" ")) > 3
    await client.ok("TOPICS")


async def test_help_names_every_command(client: TextClient) -> None:
    text = "\n".join(await client.ok("HELP"))
    commands = "PUBLISH CONSUME COMMIT OFFSETS RESET JOIN POLL LEAVE CREATE TOPICS DESCRIBE GROUPS"
    assert all(word in text for word in [*commands.split(" "), "QUIT"])


async def test_quit_ends_the_conversation(client: TextClient) -> None:
    assert await client.ask("QUIT") == ["OK"]
    assert await client.is_closed()


async def test_what_was_asked_before_the_end_of_input_is_answered(
    client: TextClient, topic: str
) -> None:
    client.write(f"PUBLISH {topic} a\nCONSUME {topic}\n")
    client.writer.write_eof()
    assert await client.line() == "OK partition=0 offset=0"
    assert await client.answer() == [f"MESSAGE {topic} 0 0 :a", "OK count=1 next=0:1"]
    assert await client.is_closed()
