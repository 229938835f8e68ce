"""What the page about the architecture names in the code is there, where it says."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.test_package_docstrings import ROOT, SOURCE, exists

PAGE = (ROOT / "docs" / "architecture.md").read_text()

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_BACKTICKED = re.compile(r"`([^`\n]+)`")
# | 4 | `Class.call`, `function` | `package.module` | what is decided |
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| `([\w.]+)` \| [^|]+ \|$", re.MULTILINE)
_ANY_ROW = re.compile(r"^\| \d+ \|", re.MULTILINE)
_MEMBER = re.compile(r"([A-Z]\w+)\.(\w+)")


class Row(NamedTuple):
    """A line of a table: calls, and the module they are in."""

    call: str
    module: str


PROSE = _FENCED.sub("", PAGE)
WORDS = sorted(set(_BACKTICKED.findall(PROSE)))
ROWS = sorted(
    {
        Row(call, module)
        for _, calls, module in _ROW.findall(PROSE)
        for call in _BACKTICKED.findall(calls)
    }
)


def source(module: str) -> list[Path]:
    path = SOURCE / module.replace(".", "/")
    return [path.with_suffix(".py")] if path.with_suffix(".py").exists() else [*path.glob("*.py")]


@cache
def calls_in(path: Path) -> frozenset[str]:
    """Functions of a module, and methods with their class."""
    found = set()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in members(node)}
    return frozenset(found)


def members(node: ast.ClassDef) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {each.name for each in node.body if isinstance(each, kinds)}


@cache
def methods() -> frozenset[str]:
    """All of them, as `Class.method`."""
    return frozenset(name for path in SOURCE.rglob("*.py") for name in calls_in(path))


def is_in(row: Row) -> bool:
    return any(row.call in calls_in(path) for path in source(row.module))


def stale(word: str) -> bool:
    member = _MEMBER.fullmatch(word)
    return not exists(word, SOURCE) or (member is not None and word not in methods())


@pytest.mark.parametrize("word", WORDS)
def test_what_the_page_names_exists(word: str) -> None:
    assert not stale(word)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.module}:{row.call}")
def test_a_call_is_in_the_module_beside_it(row: Row) -> None:
    assert is_in(row)


def test_every_row_of_the_tables_is_read() -> None:
    assert len(_ROW.findall(PROSE)) == len(_ANY_ROW.findall(PROSE))
    assert len(ROWS) > 70


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("Partition.read", False),
        ("Partition.settle", True),
        ("LogSegments", False),
        ("GroupCommit", True),
        ("broker.dispatch", True),
        ("min.insync.replicas", False),
    ],
)
def test_a_stale_name_is_found(word: str, gone: bool) -> None:
    assert stale(word) is gone


def test_a_call_in_another_module_is_found() -> None:
    assert is_in(Row("Partition.append", "replication.partition"))
    assert not is_in(Row("Partition.append", "replication.leader"))
    assert not is_in(Row("Partition.settle", "replication.partition"))
