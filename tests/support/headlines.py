"""Figures a run should show even when everything passes: how much was compared with whom.

A test takes the `headline` fixture and says one sentence; the sentences stand together near the
end of the run, parallel workers or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Headline = Callable[[str], None]

_PROPERTY = "headline"


def said_by(record_property: Callable[[str, object], None]) -> Headline:
    """What the fixture hands out: the sentence travels with the test's report."""
    return lambda sentence: record_property(_PROPERTY, sentence)


def headlines(reports: Iterable[Any]) -> list[str]:
    """Every sentence said during the run, sorted."""
    return sorted(
        str(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _PROPERTY and getattr(report, "when", "") == "call"
    )
