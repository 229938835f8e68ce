"""Whatever a line says, exactly one line closes its answer, and the next one is answered too."""

import random

import pytest

from tests.support.text_client import TextClient

LINES = 250
VERBS = ["PUBLISH", "CONSUME", "COMMIT", "OFFSETS", "RESET", "CREATE", "TOPICS", "DESCRIBE"]
VERBS += ["GROUPS", "HELP", "LEAVE", "STOP", "POLL", "JOIN", "publish", "consume", "Nonsense"]
WORDS = ["PARTITION", "KEY", "FROM", "TO", "LIMIT", "HEADER", "AT", "TIMES", "PARTITIONS", "CONFIG"]
WORDS += ["0", "1", "7", "-1", "99999999999999999999", "a=b", "=", '"two words"', '"', "\\", ":"]
WORDS += ["BEGINNING", "END", "GROUP", "@5", "-1h", "2026-01-31T12:00:00Z", "WAIT", "0", "é", "\0"]


def line(chance: random.Random, names: list[str]) -> str:
    words = [chance.choice(VERBS)]
    words += chance.choices(names + WORDS, k=chance.randrange(0, 7))
    text = chance.choice([" ", " ", "  "]).join(words)
    # A POLL or JOIN that waits would only take time.
    return f"{text} WAIT 0" if words[0] == "POLL" else text


@pytest.mark.parametrize("seed", range(3))
async def test_every_line_is_answered_once(
    client: TextClient, topic: str, group: str, seed: int
) -> None:
    chance = random.Random(seed)
    names = [topic, topic, group, f"{topic}-2"]
    await client.ok(f"CREATE {topic} PARTITIONS 2")
    for number in range(LINES):
        said = line(chance, names)
        *facts, last = await client.ask(said)
        assert last.startswith(("OK", "ERR ")), (said, last)
        assert not any(fact.startswith(("OK", "ERR")) for fact in facts), said
        if number % 20 == 0:
            await client.ok("TOPICS")
