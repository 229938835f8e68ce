"""The conversation on the page of the text listener is held as it stands."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.testing import Broker
from tests.support.gateways import QUICK_GROUPS
from tests.support.text_client import TextClient

PAGE = Path(__file__).resolve().parents[2] / "docs" / "text.md"
_TYPED = re.compile(r"([AB]?)(?:> (.*)|:)")
# Which of two members has which partition is chance.
_CHANCE = re.compile(r"payments:\d\b|\d \d :ca\w+")


class Turn(NamedTuple):
    """What is typed into a window, and all that comes back before something else is typed."""

    window: str
    typed: list[str]
    answers: list[str]


def turns(block: str) -> Iterator[Turn]:
    turn: Turn | None = None
    for line in block.splitlines():
        typed = _TYPED.fullmatch(line)
        if typed is None:
            assert turn is not None, "a conversation begins with a line that is typed"
            turn.answers.append(line)
        elif turn is not None and not turn.answers and turn.window == typed[1]:
            turn.typed.append(typed[2])
        else:
            if turn is not None:
                yield turn
            turn = Turn(typed[1], [typed[2]] if typed[2] is not None else [], [])
    if turn is not None:
        yield turn


def sections() -> list[tuple[str, list[str]]]:
    """Headings, and the conversations below each."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    blocks = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        (name, blocks.findall(text)) for name, text in zip(parts[::2], parts[1::2], strict=True)
    ]


async def hold(block: str, address: tuple[str, int], *, shape_only: bool) -> None:
    """Type what is typed; each window is a connection, open as long as the conversation."""
    async with TextClient(*address) as one, TextClient(*address) as other:
        windows = {"": one, "A": one, "B": other}
        for window, typed, answers in turns(block):
            client = windows[window]
            client.write("".join(f"{line}\n" for line in typed))
            said = [await client.line() for _ in answers]
            if shape_only:
                assert [_CHANCE.sub("?", line) for line in said] == [
                    _CHANCE.sub("?", line) for line in answers
                ]
            else:
                assert said == answers


async def test_the_conversation_on_the_page_is_held_as_it_stands() -> None:
    held = 0
    with Broker(text=True, settings=QUICK_GROUPS) as broker:
        for name, blocks in sections():
            for block in blocks:
                await hold(block, broker.text_address, shape_only=name == "Share a topic")
                held += 1
    assert held >= 8


async def test_a_wrong_answer_on_the_page_is_noticed() -> None:
    with Broker(text=True) as broker:
        for block in ("> TOPICS\nOK count=7\n", "> TOPICS\nOK count=0\nand more\n"):
            try:
                async with asyncio.timeout(1):
                    await hold(block, broker.text_address, shape_only=False)
            except (AssertionError, TimeoutError):
                continue
            raise AssertionError("not noticed")
