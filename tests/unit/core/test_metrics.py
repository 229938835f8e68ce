"""Histograms count what they are told."""

from headrace.core.metrics import SECONDS_BOUNDS, Histogram


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.1, 99.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]
    assert (histogram.count, histogram.total) == (6, 106.1)


def test_the_common_bounds_are_in_order() -> None:
    assert list(SECONDS_BOUNDS) == sorted(set(SECONDS_BOUNDS))
