"""The text of /metrics, as Prometheus' own parser reads it."""

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families

from headrace.core.metrics import Family, Histogram, Metric
from headrace.node.system import RealClock
from headrace.web.metrics import SAMPLES_AT_ONCE, render
from headrace.web.process_metrics import ProcessMetrics

PLAIN = Metric("plain", "gauge", "One number.")
COUNTED = Metric("counted_total", "counter", "Help with a \\ and\na line.", ("topic", "name"))
TIMED = Metric("timed_seconds", "histogram", "Times.", ("api",))


class Source:
    def __init__(self, *families: Family) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


class SlowSource(Source):
    async def collect(self) -> Iterable[Family]:  # type: ignore[override]  # either is a source
        await asyncio.sleep(0)
        return self._families


async def parsed(*sources: Source | ProcessMetrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample values by name and label values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families((await render(sources)).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def test_numbers_are_told_with_their_labels() -> None:
    source = Source(PLAIN.value(2.5), COUNTED.of((("a", "b"), 7), (("c", "d"), 2**53)))
    assert await parsed(source) == {
        "plain": {(): 2.5},
        "counted_total": {("a", "b"): 7, ("c", "d"): 2**53},
    }


async def test_odd_label_values_arrive_as_they_are() -> None:
    odd = ('a"b', "c\\d\ne")
    assert await parsed(Source(COUNTED.of((odd, 1)))) == {"counted_total": {odd: 1}}


async def test_a_histogram_counts_what_is_below_each_bound() -> None:
    times = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        times.observe(value)
    assert await parsed(Source(TIMED.of((("Fetch",), times)))) == {
        "timed_seconds_bucket": {("Fetch", "0.1"): 2, ("Fetch", "1.0"): 3, ("Fetch", "+Inf"): 4},
        "timed_seconds_sum": {("Fetch",): 7.65},
        "timed_seconds_count": {("Fetch",): 4},
    }


async def test_sources_may_have_to_be_waited_for_and_the_first_one_counts() -> None:
    found = await parsed(Source(PLAIN.value(1)), SlowSource(PLAIN.value(2), COUNTED.of()))
    assert found == {"plain": {(): 1}}


async def test_others_get_their_turn_while_much_is_written() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def many() -> Iterator[tuple[tuple[str, str], int]]:
        return (((str(number), ""), number) for number in range(10 * SAMPLES_AT_ONCE))

    task = asyncio.get_running_loop().create_task(other())
    await render([Source(COUNTED.each(many()))])
    task.cancel()
    assert turns >= 10


async def test_the_process_tells_what_it_costs() -> None:
    found = await parsed(ProcessMetrics(RealClock()))
    assert found["process_cpu_seconds_total"][()] > 0
    assert found["process_resident_memory_bytes"][()] > 2**20
    assert 3 <= found["process_open_fds"][()] <= found["process_max_fds"][()]
    assert found["process_start_time_seconds"][()] > 1.6e9
