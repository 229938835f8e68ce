"""Times and durations as people write them."""

from datetime import UTC, datetime

import pytest
import typer

from headrace.cli.times import duration_ms, milliseconds
from headrace.client.core.models import at_time

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30 * SECOND),
        ("1.5s", 1_500),
        ("90m", 90 * MINUTE),
        ("2h", 2 * HOUR),
        ("1d12h", DAY + 12 * HOUR),
        ("PT1H30M", 90 * MINUTE),
        ("P1D", DAY),
        ("P2W", 14 * DAY),
        ("P1DT2H3M4.5S", DAY + 2 * HOUR + 3 * MINUTE + 4_500),
        ("pt5s", 5 * SECOND),
        ("0s", 0),
    ],
)
def test_durations_are_read(text: str, expected: int) -> None:
    assert duration_ms(text, "--by-duration") == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "1y", "-1h", "h1", "1h1d", "9" * 30 + "d"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration_ms(text, "--by-duration")


def test_times_are_read_with_a_zone_or_as_milliseconds() -> None:
    noon = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
    assert milliseconds("2026-01-31T12:00Z", "--to-time") == noon
    assert milliseconds("2026-01-31T13:00+01:00", "--to-time") == noon
    assert milliseconds(f"@{noon}", "--to-time") == noon
    assert at_time(milliseconds("1960-01-31T12:00Z", "--to-time")) == at_time(0)


@pytest.mark.parametrize("text", ["yesterday", "@", "@x", "12:00", ""])
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no time such as"):
        milliseconds(text, "--to-time")
