"""What people see of progress: a line per batch, or a table that stays."""

import io

from rich.console import Console

from headrace.spark.progress.terminal import Lines, LiveTable, line, open_screen, spark_line
from tests.support.spark_progress import BEGIN, batch


def test_a_batch_is_a_line_with_what_it_has() -> None:
    assert line(batch(3, rows=12_345, rows_per_second=24_690.0)) == (
        "14:13:23 clicks-topic: batch 3; 12,345 rows in 500 ms; 24,690 rows/s; lag clicks 10"
    )
    full = batch(4, lag={"a": 0, "b": 9}, state_rows=7, state_bytes=2048, watermark=BEGIN)
    assert line(full).endswith(
        "; lag a 0; lag b 9; state 7 rows, 2.0 kB; watermark 2026-09-21 14:13:20"
    )


def test_late_rows_are_part_of_the_line_and_a_number_that_is_too_small_says_so() -> None:
    assert "; late 28 of 90 rows" in line(batch(1, late=28, late_of=90))
    assert "; late 0 and 3 in part of 90 rows" in line(batch(1, late=0, late_partly=3, late_of=90))
    assert "; late at least 0 of 90 rows" in line(batch(1, late=0, late_of=90, late_is_exact=False))
    assert "late" not in line(batch(1, late=0, late_of=90))
    assert "late" not in line(batch(1))


def test_where_no_terminal_is_each_batch_is_a_line() -> None:
    stream = io.StringIO()
    screen = open_screen(stream)
    assert isinstance(screen, Lines)
    screen.started("clicks-topic")
    screen.show(batch(0))
    screen.show(batch(1))
    screen.ended("clicks-topic", None)
    screen.ended("clicks-delta", "\nBoom: no such table\n\tat java.lang")
    screen.close()
    start, first, second, *ends = stream.getvalue().splitlines()
    assert start == "clicks-topic: started"
    assert (first, second) == (line(batch(0)), line(batch(1)))
    assert ends == ["clicks-topic: ended", "clicks-delta: failed: Boom: no such table"]


def test_a_failure_in_python_is_told_by_what_was_raised() -> None:
    stream = io.StringIO()
    trace = (
        "[P] Thrown: Traceback (most recent call last):\n  File 'a'\nValueError: no\n SQLSTATE: 1"
    )
    Lines(stream).ended("clicks", f"PythonException: {trace}")
    assert stream.getvalue() == "clicks: failed: ValueError: no\n"


def test_a_terminal_has_a_table_with_a_row_per_query() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    screen = LiveTable(console)
    screen.started("clicks-topic")
    assert stream.getvalue().split()[-9:] == ["clicks-topic", *["-"] * 8]
    screen.show(batch(0, rows=100))
    screen.show(
        batch(
            1,
            rows=900,
            rows_per_second=1800.0,
            lag={"a": 1000, "b": 234},
            lag_before={"a": 1500, "b": 634},
            late=28,
            late_of=900,
            late_is_exact=False,
        )
    )
    screen.show(batch(0, query="clicks-delta", lag={}, state_rows=77))
    screen.ended("clicks-delta", "Boom: x")
    screen.close()
    shown = stream.getvalue()
    last = shown[shown.rindex("query ") :]
    delta, topic, a, b = [each.split() for each in last.splitlines()[2:6]]
    assert delta[:4] == ["clicks-delta", "failed:", "Boom:", "x"]
    assert delta[-3:-1] == ["77", "rows"]
    assert topic[:8] == ["clicks-topic", "1", "1,000", "1,800", "500", "ms", "2,134", "1,234"]
    assert topic[8] == "28+"
    assert (a, b) == (["a", "1,500", "1,000"], ["b", "634", "234"])


def test_the_course_of_late_is_drawn_against_its_highest() -> None:
    assert spark_line([0, 50, 100]) == "▁▅█"
    assert spark_line([0, 0]) == "▁▁"
    assert spark_line([]) == ""
