"""Names that were given up do not come back: not as a module, class, function or variable."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("retired_names.txt")


def retired_names() -> dict[str, str]:
    """What is said today instead of each name."""
    lines = (line for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split(maxsplit=1) for line in lines)


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Identifiers that a program introduces or uses, with their lines; no text."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.Name():
                yield node.id, node.lineno
            case ast.Attribute():
                yield node.attr, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.keyword(arg=str(name)):
                yield name, node.value.lineno
            case ast.alias():
                yield from ((part, node.lineno) for part in node.name.split("."))
                if node.asname is not None:
                    yield node.asname, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def modules() -> Iterator[Path]:
    for directory in ("src", "tests", "bench", "scripts"):
        yield from sorted((ROOT / directory).rglob("*.py"))


def test_no_retired_name_is_used_again() -> None:
    retired = retired_names()
    found = []
    for path in modules():
        where = path.relative_to(ROOT)
        named = [(part, 0) for part in where.with_suffix("").parts]
        for name, line in (*named, *names_in(ast.parse(path.read_bytes()))):
            if name in retired:
                found.append(f"{where}:{line}: {name} is called {retired[name]} today")
    assert found == []


def test_every_kind_of_name_is_seen() -> None:
    source = """
import a_module.part as other
class Kind: ...
def function(argument, *, option): receiver.attribute = variable
call(keyword=1)
try: ...
except Error as caught: ...
match variable:
    case [first, *rest]: ...
"text"
"""
    assert {name for name, _ in names_in(ast.parse(source))} == {
        *("a_module", "part", "other", "Kind", "function", "argument", "option", "receiver"),
        *("attribute", "variable", "call", "keyword", "Error", "caught", "first", "rest"),
    }


def test_the_list_is_sorted_and_names_nothing_twice() -> None:
    names = [
        line.split()[0]
        for line in LIST.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert names == sorted(set(names))
