"""Pages made from code say what the code says; written pages run and link to what exists."""

import ast
import re
from pathlib import Path

import pytest

from headrace.core.broker_configs import BROKER_KEYS
from headrace.core.keys.cluster import Only
from headrace.core.topic_configs import TOPIC_KEYS
from scripts.changelog import find_fragments, section
from scripts.reference import PAGES, drifted

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_generated_pages_have_not_drifted_from_the_code() -> None:
    assert drifted() == [], "run `make docs`, or `.venv/bin/python -m scripts.reference`"


def test_a_page_that_drifted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(drifted())
    monkeypatch.setitem(PAGES, "commands.md", lambda: "something else")
    assert set(drifted()) == before | {"commands.md"}


def test_the_changelog_holds_every_fragment() -> None:
    page = (ROOT / "CHANGELOG.md").read_text()
    missing = [
        each.name for each in find_fragments() if " ".join(each.read_text().split()) not in page
    ]
    advice = "run `make docs`, or `.venv/bin/python -m scripts.changelog`"
    assert missing == [], advice
    joined = section(find_fragments())
    if joined not in page:  # not by assert: it would print both at length
        pytest.fail(f"CHANGELOG.md holds what no fragment says, or in another order: {advice}")


def test_every_broker_key_is_read_somewhere() -> None:
    """A key that nobody reads would be accepted without effect."""
    read: set[str] = set()
    declarations = {"broker_configs.py", "topic_configs.py"}
    for path in (ROOT / "src").rglob("*.py"):
        if path.name not in declarations:
            tree = ast.parse(path.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for_topics = {synonym.name for known in TOPIC_KEYS.values() for synonym in known.synonyms}
    by_property = {"listeners", "advertised.listeners", "listener.security.protocol.map"}
    by_property |= {"log.dirs", "log.dir"}
    unread = [
        name
        for name, known in BROKER_KEYS.items()
        if known.attribute not in read
        and name not in for_topics | by_property
        and not isinstance(known.valid, Only)  # whoever sets it gets what happens anyway
    ]
    assert unread == [], "declared, and without effect: nothing in src reads them"


def test_every_topic_key_is_read_somewhere() -> None:
    read: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        if path.name != "topic_configs.py":
            tree = ast.parse(path.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    # Nothing can be elected uncleanly while a partition has one replica.
    waiting = {"unclean.leader.election.enable", "internal.segment.bytes"}
    unread = [n for n, known in TOPIC_KEYS.items() if known.attribute not in read]
    without_effect = set(unread) - waiting
    assert without_effect == set(), "declared, and without effect: nothing in src reads them"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
