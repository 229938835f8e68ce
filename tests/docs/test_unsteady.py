"""Tests that needed a second try are mended: a record of one expires."""

import tomllib
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).resolve().parents[1] / "unsteady.toml"
MENDED_WITHIN = timedelta(days=14)
TRIES_MAX = 2


def overdue(entries: list[dict[str, Any]], today: date) -> list[str]:
    """What has to be mended now, or is no test that can be tried twice."""
    tries = Counter(entry["test"] for entry in entries)
    return [
        f"{entry['test']} ({entry['date']}): {entry['failure']}"
        for entry in entries
        if today - entry["date"] > MENDED_WITHIN or tries[entry["test"]] > TRIES_MAX
    ]


def test_unsteady_tests_are_mended_in_time() -> None:
    entries = tomllib.loads(RECORD.read_text()).get("second_try", [])
    assert overdue(entries, date.today()) == []


@pytest.mark.parametrize(
    ("ages", "late"),
    [((0,), 0), ((14,), 0), ((15,), 1), ((1, 1), 0), ((1, 1, 1), 3), ((15, 1), 1)],
)
def test_a_record_expires(ages: tuple[int, ...], late: int) -> None:
    today = date(2030, 1, 31)
    entries = [
        {"test": "tests/faults/test_it.py::test", "date": today - timedelta(age), "failure": "no"}
        for age in ages
    ]
    assert len(overdue(entries, today)) == late
