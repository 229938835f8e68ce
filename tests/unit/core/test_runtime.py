"""One seed gives one history: what is below the node takes time and chance as it is given them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

SOURCE = Path(headrace.__file__).parent
# Where the real ones are made, and programs that no simulation runs.
ABOVE = {"node", "cli", "spark", "testing"}
# A client that was given no clock is a program's own.
EXEMPT = {"client/system.py"}

_MODULES = {"random", "secrets", "time"}
_CALLS = {"getrandom", "run_in_executor", "to_thread", "urandom", "uuid1", "uuid4"}
_TIMES = {"now", "today", "utcnow"}


def own_time_or_chance(source: str) -> Iterator[str]:
    """What a module takes from the machine instead of from who made it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names if each.name in _MODULES)
            case ast.ImportFrom(module, names):
                if module in _MODULES:
                    yield module
                yield from (each.name for each in names if each.name in _CALLS)
            case ast.Attribute(_, name) if name in _CALLS:
                yield name
            case ast.Call(ast.Attribute(ast.Name("datetime" | "date") as owner, name)):
                if name in _TIMES:
                    yield f"{owner.id}.{name}"
            case _:
                pass


def test_nothing_below_the_node_reads_a_clock_or_draws_a_number() -> None:
    found = [
        f"{where}: {what}"
        for path in sorted(SOURCE.rglob("*.py"))
        if (where := path.relative_to(SOURCE).as_posix()) not in EXEMPT
        and path.relative_to(SOURCE).parts[0] not in ABOVE
        for what in own_time_or_chance(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from uuid import UUID, uuid4",
        "import uuid\nname = uuid.uuid4()",
        "import os\nkey = os.urandom(16)",
        "from datetime import datetime\nat = datetime.now()",
        "import asyncio\nasyncio.to_thread(print)",
    ],
)
def test_what_reads_one_is_found(source: str) -> None:
    assert list(own_time_or_chance(source))
