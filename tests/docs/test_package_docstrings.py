"""The docstring of a package names what is in it, and nothing that is not there.

It names its modules and subpackages in backticks or in the first column of an indented list:

    segments, rolling    files of a log, and when the next one begins

A package whose docstring says "One module per …" is named as a whole.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from headrace.cli.main import COMMANDS
from headrace.core.broker_configs import BROKER_KEYS
from headrace.core.topic_configs import TOPIC_KEYS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
# The map of the packages themselves is the layout in README.md.
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)

_LIST_ROW = re.compile(r"^ {4,6}([a-z0-9_]+(?:, [a-z0-9_]+)*)(?: {2,}\S.*)?$", re.MULTILINE)
_BACKTICKED = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_FOREIGN = {"headrace", "nc", "pyspark_headrace", "crc32c"}


def names(package: Path) -> str:
    return package.relative_to(SOURCE).as_posix()


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False) or ""


def modules(package: Path) -> Iterator[str]:
    for path in sorted(package.iterdir()):
        is_module = path.suffix == ".py" and path.stem != "__init__"
        if is_module or (path / "__init__.py").exists():
            yield path.stem


def named(text: str) -> set[str]:
    listed = (name for row in _LIST_ROW.findall(text) for name in row.split(", "))
    return {
        *listed,
        *(part for word in _BACKTICKED.findall(text) for part in re.split(r"\W", word)),
    }


def unnamed(package: Path) -> list[str]:
    text = docstring(package)
    if "One module per " in text:
        return []
    return [module for module in modules(package) if module not in named(text)]


@cache
def defined() -> dict[str, set[str]]:
    """Where each class, function and constant is defined, by its name."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    found.setdefault(name, set()).add(module)
                case ast.AsyncFunctionDef(name=name):
                    found.setdefault(name, set()).add(module)
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    found.setdefault(name, set()).add(module)
    return found


def exists(word: str, package: Path) -> bool:
    """Whether something of this name is there: a path, a module, a class, a key, a command."""
    word = word.removesuffix("(command)").removesuffix("()")
    if word.startswith(("/", "__")):
        return True  # a path of the HTTP API, an internal topic
    if "/" in word or word.endswith(".py"):
        return any((base / word).exists() for base in (package, SOURCE, ROOT))
    if _NAME.fullmatch(word) is None:
        return True  # a file suffix, an option, a line of shell
    if word in _FOREIGN or word in COMMANDS or word in BROKER_KEYS or word in TOPIC_KEYS:
        return True
    return _is_module(word.removeprefix("headrace."), package) or (
        word.rpartition(".")[2] in defined()
        and (
            "." not in word
            or _is_module(word.rpartition(".")[0], package)
            or word.partition(".")[0] in defined()
        )
    )


def _is_module(dotted: str, package: Path) -> bool:
    path = dotted.replace(".", "/")
    return any(
        (base / f"{path}.py").exists() or (base / path / "__init__.py").exists()
        for base in (package, SOURCE)
    )


def stale(package: Path) -> list[str]:
    return [word for word in _BACKTICKED.findall(docstring(package)) if not exists(word, package)]


held = pytest.mark.parametrize("package", PACKAGES, ids=names)


@held
def test_a_package_names_all_its_modules(package: Path) -> None:
    assert unnamed(package) == []


@held
def test_a_package_names_nothing_that_does_not_exist(package: Path) -> None:
    assert stale(package) == []


def test_names_are_found_in_lists_and_in_backticks() -> None:
    text = """Segments.

    plan, rewrite    what goes, and how
    swap
                     a line of its own
    with code(here):  not a list

    `core.files` and `shard.py`, but not words.
    """
    listed = {"plan", "rewrite", "swap", "core", "files", "shard", "py"}
    assert named("\n".join(line.removeprefix("    ") for line in text.splitlines())) >= {
        "core",
        "files",
        "shard",
    }
    assert named(text) == listed


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("core.files", True),
        ("core.doors", False),
        ("headrace.client", True),
        ("BrokerConfig", True),
        ("BrokerConfiguration", False),
        ("web.app.create_app", True),
        ("tests/simulation", True),
        ("service.py", False),
        ("log.dirs", True),
        ("--output json", True),
    ],
)
def test_what_is_named_is_looked_for(word: str, there: bool) -> None:
    assert exists(word, SOURCE / "core") is there
