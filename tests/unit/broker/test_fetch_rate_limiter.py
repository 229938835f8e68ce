"""Long polls of a busy connection are answered together, those of a calm one at once."""

from headrace.broker.fetch_rate_limiter import (
    PAUSE_SECONDS,
    RESPONSES_IN_WINDOW,
    WINDOW_SECONDS,
    FetchRateLimiter,
)


def test_a_thousand_answers_a_second_never_wait() -> None:
    pace = FetchRateLimiter()
    assert not any(pace.delay(number / 1000) for number in range(1000))


def test_a_burst_is_held_back_and_calm_restores_the_pace() -> None:
    pace = FetchRateLimiter()
    burst = [pace.delay(1.0 + number / 100_000) for number in range(RESPONSES_IN_WINDOW + 2)]
    assert burst == [0.0] * RESPONSES_IN_WINDOW + [PAUSE_SECONDS] * 2
    assert pace.delay(1.0 + WINDOW_SECONDS) == 0.0
