"""Rows of the comparison on Spark: against the faster of two, within one, or by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.machine import Machine
from bench.spark.report import RunConditions, markdown
from bench.spark.rows import OFFICIAL, OFFICIAL_KAFKA, OURS, ROWS, Row, Values, judge
from bench.spark.sides import Side, in_turn
from tests.support.brokers import HeadraceProcess

_READ = Row("read", "read", "x", 1.3, against=True)
_PARITY = Row("parity", "read", "x", 0.95, parity=True)
_ABOUT = RunConditions(
    Machine("ext4", 0.15, 0.4, "a processor", 2, 24, "3.11"),
    "short form",
    {"pyspark": "4.3.0"},
    {"Spark": {"master": "local[2]"}},
    (0.1, 0.2, 0.3),
    (0.4, 0.5, 0.6),
    5.0,
)


def _values(**rates: list[float]) -> Values:
    values = Values()
    names = {"ours": OURS, "official": OFFICIAL, "kafka": OFFICIAL_KAFKA}
    for side, taken in rates.items():
        for rate in taken:
            values.add("read", rate, names[side])
    return values


@pytest.mark.parametrize(
    ("official", "kafka", "met"), [(100, 50, True), (50, 100, True), (50, 101, False)]
)
def test_ours_is_held_against_the_faster_side(official: float, kafka: float, met: bool) -> None:
    values = _values(ours=[1, 130, 900], official=[official], kafka=[kafka])
    (verdict,) = judge(values, [_READ])
    assert verdict.met is met


def test_the_official_connector_is_held_against_itself_on_the_other_broker() -> None:
    (verdict,) = judge(_values(ours=[1], official=[94], kafka=[100]), [_PARITY])
    assert (verdict.value, verdict.met) == (0.94, False)


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    for values in (_values(), _values(ours=[5]), _values(official=[5])):
        assert [each.met for each in judge(values, [_READ, _PARITY])] == [None, None]


def test_a_limit_is_met_from_below() -> None:
    values = Values()
    values.add("session start", 9.9)
    verdicts = {each.row.measure: each.met for each in judge(values, ROWS)}
    assert verdicts.pop("session start") is True
    assert set(verdicts.values()) == {None}


def test_the_page_has_every_row_and_every_measure() -> None:
    values = _values(ours=[120.0, 130.0], official=[100.0])
    page = markdown(judge(values, [_READ, *ROWS]), values, _ABOUT)
    for row in ROWS:
        assert f"| {row.title} |" in page
    assert "| read | 1.25 x | ≥ 1.3 x | **not met** | 125 (120 to 130) | 100 | - |" in page
    assert "| read | 125 (120 to 130) | 100 | - |" in page


def test_sides_take_turns_at_being_first_and_the_first_rounds_do_not_count(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data")
    sides = [Side(name, name, broker) for name in ("a", "b")]
    order = [(counts, [each.name for each in given]) for counts, given in in_turn(sides, 1, 2)]
    assert order == [(False, ["a", "b"]), (True, ["b", "a"]), (True, ["a", "b"])]
