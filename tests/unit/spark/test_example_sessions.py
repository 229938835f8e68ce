"""Visits of the example with state: the same however the clicks are cut into batches."""

import importlib.util
from pathlib import Path
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).resolve().parents[3] / "examples" / "sessions.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_sessions", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = loaded()
GAP = EXAMPLE.GAP
times = st.lists(st.integers(0, 40).map(lambda tenth: tenth * GAP // 10), max_size=30)


@given(st.lists(times, max_size=5))
def test_visits_do_not_depend_on_order_and_batches(batches: list[list[int]]) -> None:
    state: list[tuple[int, int, int, float]] = []
    for batch in batches:
        state = EXAMPLE.joined([*state, *((at, at, 1, 0.25) for at in batch)])
    everything = sorted(at for batch in batches for at in batch)
    expected: list[list[int]] = []
    for at in everything:
        if expected and at - expected[-1][-1] <= GAP:
            expected[-1].append(at)
        else:
            expected.append([at])
    assert state == [(visit[0], visit[-1], len(visit), len(visit) / 4) for visit in expected]


def test_a_late_click_joins_two_visits() -> None:
    apart = EXAMPLE.joined([(0, 0, 1, 1.0), (2 * GAP, 2 * GAP, 1, 2.0)])
    assert len(apart) == 2
    assert EXAMPLE.joined([*apart, (GAP, GAP, 1, 4.0)]) == [(0, 2 * GAP, 3, 7.0)]
