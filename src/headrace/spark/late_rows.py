"""Late rows counted where they are about to be left out: before the first step with a watermark.

    frame = count_late(frame, "at", size="1 minute")

A row is late when all windows it belongs to are over, by the watermark in the column
`_late_before` (see `watermarks.py`). A row of a sliding window may be late for some of its windows
only; those are counted apart. The counts are an observation of the query, in the progress of each
batch under the name LATE_COUNTS.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812, as all the world calls it
from pyspark.sql.types import TimestampNTZType

from headrace.core.errors import InvalidConfig
from headrace.spark.options import LATE_BEFORE, LATE_COUNTS

_UNITS_US: Final = {
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}


def count_late(
    frame: DataFrame,
    time: str,
    size: str | None = None,
    slide: str | None = None,
    session: str | None = None,
) -> DataFrame:
    """The same rows, counted, without the column that told what is late.

    With `size` (and `slide`) late is what is in no window any more, with `session` what begins and
    ends before the watermark; with none of them a row is late by its own time.
    """
    at, before = _micros(frame, time), F.unix_micros(F.col(LATE_BEFORE))
    if size is not None:
        last_end, first_end = _window_ends(at, span_us(size), span_us(slide or size))
    else:
        last_end = first_end = at + F.lit(0 if session is None else span_us(session))
    late = last_end <= before
    counted = frame.observe(
        LATE_COUNTS,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(late).alias("late"),
        F.count_if(~late & (first_end <= before)).alias("partly"),
        F.count_if(F.col(LATE_BEFORE).isNull()).alias("unknown"),
    )
    return counted.drop(LATE_BEFORE)


def span_us(text: str) -> int:
    """A time span in Spark's words, such as `1 hour 30 minutes`, in microseconds."""
    words = text.lower().split()
    try:
        return sum(
            int(number) * _UNITS_US[unit.removesuffix("s")]
            for number, unit in zip(words[::2], words[1::2], strict=True)
        )
    except (KeyError, ValueError):
        raise InvalidConfig(f"{text!r} is no time span such as 30 seconds or 1 hour") from None


def _micros(frame: DataFrame, time: str) -> Column:
    """Microseconds since 1970; a time without a zone is compared as if it were UTC's, by Spark."""
    column = F.col(time)
    if isinstance(frame.select(column).schema[0].dataType, TimestampNTZType):
        column = F.convert_timezone(F.lit("UTC"), F.current_timezone(), column)
    return F.unix_micros(column.cast("timestamp"))


def _window_ends(at: Column, size: int, slide: int) -> tuple[Column, Column]:
    """When the last and the first window of a row end; windows begin at multiples of `slide`."""
    last_end = at - F.pmod(at, F.lit(slide)) + F.lit(size)
    # Back by whole slides, for as long as the end still lies after the row.
    back = F.floor((last_end - at - F.lit(1)) / F.lit(slide)).cast("bigint")
    return last_end, last_end - back * F.lit(slide)
