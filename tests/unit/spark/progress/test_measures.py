"""A batch in numbers, from Spark's JSON and through the history's lines."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.progress import Progress
from headrace.spark.progress.measures import from_line, from_spark, to_line
from tests.support.spark_progress import BEGIN, batch, told


def source(**changes: Any) -> dict[str, Any]:
    return {**told()["sources"][0], **changes}


def test_a_batch_is_told_in_all_its_numbers() -> None:
    assert from_spark(told()) == Progress(
        query="clicks-topic",
        run="bbbbbbbb-0000-0000-0000-000000000001",
        batch=3,
        at=BEGIN + 0.5,
        rows=1000,
        rows_per_second=2000.0,
        batch_ms=500,
        lag={"clicks": 50 + 300},
        lag_before={"clicks": 550 + 800},
        state_rows=42,
        state_bytes=5120,
        watermark=BEGIN - 30,
        late=2,
        late_of=1000,
        late_is_exact=False,
    )


def counted(**counts: int) -> dict[str, Any]:
    return {"headrace_late": {"rows": 900, "late": 0, "partly": 0, "unknown": 0, **counts}}


def dropping(*numbers: int) -> list[dict[str, Any]]:
    """Operators as Spark tells them, the last step first."""
    return [{"operatorName": "x", "numRowsDroppedByWatermark": each} for each in numbers]


def test_late_rows_are_those_that_were_counted_one_by_one() -> None:
    seen = from_spark(
        told(observedMetrics=counted(late=333, partly=44), stateOperators=dropping(0, 5))
    )
    assert (seen.late, seen.late_of, seen.late_partly) == (333, 900, 44)
    assert seen.late_is_exact


def test_late_rows_of_later_steps_are_sparks_number_and_make_it_a_lower_bound() -> None:
    seen = from_spark(told(observedMetrics=counted(late=333), stateOperators=dropping(7, 5)))
    assert (seen.late, seen.late_is_exact) == (340, False)


@pytest.mark.parametrize("metrics", [{}, counted(late=0, unknown=900)])
def test_what_nobody_could_count_is_never_a_plain_zero(metrics: dict[str, Any]) -> None:
    seen = from_spark(told(observedMetrics=metrics, stateOperators=dropping(0)))
    assert (seen.late, seen.late_of, seen.late_is_exact) == (0, 1000, False)
    empty = from_spark(told(observedMetrics={}, numInputRows=0, stateOperators=dropping(0)))
    assert (empty.late, empty.late_is_exact) == (0, True)


def test_without_a_watermark_nothing_is_said_about_late_rows() -> None:
    seen = from_spark(told(eventTime={}))
    assert (seen.late, seen.late_is_exact) == (None, True)


def test_a_query_without_a_name_goes_by_its_id() -> None:
    assert from_spark(told(name=None)).query == "aaaaaaaa-0000-0000-0000-000000000001"


def test_before_the_first_watermark_there_is_none() -> None:
    assert from_spark(told(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})).watermark is None
    assert from_spark(told(eventTime={})).watermark is None


def test_a_batch_without_rows_has_a_rate_of_zero() -> None:
    idle = told(numInputRows=0, processedRowsPerSecond=None, batchDuration=0)
    assert from_spark(idle).rows_per_second == 0


def test_offsets_may_come_as_text() -> None:
    as_text = {
        name: json.dumps(source()[name]) for name in ("startOffset", "endOffset", "latestOffset")
    }
    assert from_spark(told(sources=[source(**as_text)])).lag == {"clicks": 350}


def test_the_first_batch_had_before_it_what_it_read() -> None:
    first = from_spark(told(sources=[source(startOffset=None)]))
    assert first.lag_before == {"clicks": 350 + 1000}


def test_a_partition_that_is_new_counts_from_its_beginning() -> None:
    grown = source(latestOffset={"clicks": {"0": 650, "1": 1000, "2": 5}})
    assert from_spark(told(sources=[grown])).lag == {"clicks": 355}


def test_a_topic_that_was_made_anew_has_no_lag_below_zero() -> None:
    anew = source(latestOffset={"clicks": {"0": 3, "1": 4}})
    assert from_spark(told(sources=[anew])).lag == {"clicks": 0}
    one_partition = source(latestOffset={"clicks": {"0": 3, "1": 1000}})
    assert from_spark(told(sources=[one_partition])).lag == {"clicks": 300}


@pytest.mark.parametrize("offset", [17, None, {"logOffset": 4}, {"clicks": {"x": 1}}, "seven", []])
def test_sources_that_are_no_topics_have_no_lag(offset: object) -> None:
    other = source(startOffset=offset, endOffset=offset, latestOffset=offset)
    progress = from_spark(told(sources=[other]))
    assert (progress.lag, progress.lag_before, progress.lag_sum) == ({}, {}, None)


def test_of_two_sources_on_one_topic_the_slower_one_counts() -> None:
    behind = source(endOffset={"clicks": {"0": 100, "1": 200}})
    assert from_spark(told(sources=[behind, source()])).lag == {"clicks": 550 + 800}


@given(
    lag=st.dictionaries(st.text(max_size=8), st.integers(0, 2**60), max_size=3),
    watermark=st.none() | st.floats(1, 4e9),
    query=st.text(min_size=1, max_size=20),
)
def test_a_line_brings_a_batch_back(
    lag: dict[str, int], watermark: float | None, query: str
) -> None:
    progress = batch(7, query=query, lag=lag, lag_before=lag, watermark=watermark)
    line = to_line(progress)
    assert line.count("\n") == 1
    assert from_line(line) == progress


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "7", "{}", to_line(batch(1))[:-20], '{"query": "a", "at": "noon"}']
)
def test_a_line_that_is_no_batch_is_left_out(line: str) -> None:
    assert from_line(line) is None


def test_a_line_of_a_later_version_is_read_by_what_is_known() -> None:
    later = json.dumps({**json.loads(to_line(batch(1))), "shuffles": 4})
    assert from_line(later) == batch(1)
