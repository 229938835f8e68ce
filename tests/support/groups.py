"""Groups of tests that need a foreign tool: skipped by name, never silently.

A test asks for its tool through a fixture; when the tool is out of reach the test is skipped with
a reason this module recognises again in the reports. The last lines of the run then name each
group that did not run, and in CI such a run fails.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from tests.support.tools import ToolOutOfReach

# How pytest exits when everything that ran passed or failed, but a group could not run: other than
# for failed tests alone, since running those again would not bring the group back.
SKIPPED_GROUPS = 8

_REASON = re.compile(r"tool group '(?P<group>[^']+)' is out of reach: (?P<why>.*)", re.DOTALL)
_Tool = TypeVar("_Tool")


def required(find: Callable[[], _Tool]) -> _Tool:
    """The tool, or a skip that names its group."""
    try:
        return find()
    except ToolOutOfReach as error:
        pytest.skip(str(error))


def skipped_groups(reports: Iterable[Any]) -> dict[str, tuple[int, str]]:
    """Group name to (how many tests were skipped, why) from the reports of skipped tests."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for report in reports:
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        match = _REASON.search(said)
        if match is not None:
            counts[match["group"]] += 1
            reasons[match["group"]] = match["why"].strip()
    return {group: (counts[group], reasons[group]) for group in sorted(counts)}


def in_ci() -> bool:
    """Whether a skipped group must fail the run."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}
