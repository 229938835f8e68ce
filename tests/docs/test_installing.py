"""What the pages and messages tell to install can be installed."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def commands(page: Path) -> list[str]:
    return re.findall(r"pip install ([^\n`#]+)", page.read_text())


def named_extras(text: str) -> set[str]:
    """All that stand in brackets behind the project, a checkout or a wheel of it."""
    found = re.findall(r"(?:headrace|[\"'.)])\[([a-z,]+)\]", text)
    return {extra for each in found for extra in each.split(",")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_install_from_a_checkout_or_a_wheel(page: Path) -> None:
    """Headrace is in no package index: its bare name would get nothing, or somebody else's."""
    for command in commands(page):
        assert not re.search(r"(^|[\s\"'])headrace\b(?!-\*)", command), command


def test_every_extra_that_is_named_exists() -> None:
    said = [page.read_text() for page in PAGES]
    said += [source.read_text() for source in (ROOT / "src").rglob("*.py")]
    told = [
        line for text in said for line in text.splitlines() if "pip" in line or "headrace[" in line
    ]
    assert {"spark", "delta", "jre"} <= named_extras("\n".join(told)) <= set(EXTRAS)
