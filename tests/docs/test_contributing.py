"""The guide for changes names what exists; the maps show the packages as they are."""

import re
import tomllib
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
README = (ROOT / "README.md").read_text()
PACKAGES = {path.parent.name for path in (ROOT / "src" / "headrace").glob("*/__init__.py")}

PATHS = sorted(
    {
        word
        for word in re.findall(r"`([^`\s]+)`", GUIDE)
        if "/" in word and "NAME" not in word and "://" not in word
    }
)
MODULES = sorted(set(re.findall(r"python -m (?!pytest)([\w.]+)", GUIDE)))
TARGETS = sorted(
    {name for line in re.findall(r"`?make ([a-z -]+)", GUIDE) for name in line.split()}
)


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_the_guide_names_exist(path: str) -> None:
    assert list(ROOT.glob(path)), path


@pytest.mark.parametrize("name", MODULES)
def test_modules_that_the_guide_runs_exist(name: str) -> None:
    assert find_spec(name) is not None


@pytest.mark.parametrize("target", TARGETS)
def test_targets_that_the_guide_names_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_something_of_each_was_found() -> None:
    assert len(PATHS) > 20
    assert MODULES == ["bench.micro_produce", "tests.simulation"]
    assert {"setup", "check", "test", "docs"} <= set(TARGETS)


def test_the_layout_lists_every_package_once() -> None:
    layout = README.partition("src/headrace/\n")[2].partition("```")[0]
    assert sorted(re.findall(r"^  (\w+)/ ", layout, re.MULTILINE)) == sorted(PACKAGES)


def test_the_diagram_of_imports_has_the_layers_that_are_enforced() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [each for each in settings["contracts"] if each["type"] == "layers"]
    layers = [layer.replace(" | ", " & ") for layer in contract["layers"]]
    rows = [f"    {upper} --> {lower}" for upper, lower in pairwise(layers)]
    diagram = "```mermaid\nflowchart TD\n" + "\n".join(rows) + "\n```"
    assert diagram in (ROOT / "docs" / "architecture.md").read_text()
