"""Two commits side by side: what is said of their figures."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.commits import BEFORE, NOW, show
from bench.readings import Readings


@pytest.mark.parametrize(
    ("measure", "before", "now", "well"),
    [
        ("produce 1 KB acks=1: MB/s", 100, 96, True),
        ("produce 1 KB acks=1: MB/s", 100, 94, False),
        ("offset commits, one at a time: per s", 100, 94, False),
        ("consume 1 KB, large fetches: MB per CPU second", 100, 94, False),
        ("no socket, fast: CPU us", 100, 102, True),
        ("no socket, fast: CPU us", 100, 104, False),
        ("one produce acks=1, client: p99 ms", 1, 9, True),
    ],
)
def test_a_rate_may_fall_by_a_twentieth_and_cpu_rise_by_three_hundredths(
    measure: str, before: float, now: float, well: bool
) -> None:
    readings = Readings()
    for odd_one in (0.1, 1, 10):
        readings.add(measure, BEFORE, before)
        readings.add(measure, NOW, now * odd_one)  # the middle pair is judged
    said = io.StringIO()
    assert show(readings, Console(file=said, width=160)) is well
    assert ("WORSE" in said.getvalue()) is not well
