"""How long to wait before trying again."""

from headrace.core.runtime import Randomness

_JITTER = 0.2


class Backoff:
    """Doubles from the first delay up to the largest, each time up to a fifth shorter or longer.

    The jitter keeps many clients that lost the same broker from coming back in one wave.
    """

    __slots__ = ("_first_ms", "_max_ms", "_randomness")

    def __init__(self, first_ms: float, max_ms: float, randomness: Randomness) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._randomness = randomness

    def delay_ms(self, failures: int) -> float:
        """The wait after this many failures in a row (1 for the first)."""
        exponent = min(max(failures - 1, 0), 30)
        base = min(self._first_ms * float(2**exponent), self._max_ms)
        return base * (1 + _JITTER * (2 * self._randomness.random() - 1))
