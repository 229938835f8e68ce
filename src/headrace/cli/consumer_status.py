"""What a consumer tells people on stderr while it has no records to show."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.errors import HeadraceError

NOTICE_SECONDS = 2


class ConsumerStatus:
    """Says once that the broker is lost, or the group busy, and once that it is over."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._is_lost = False
        self._waiting_since: float | None = None
        self._has_said_waiting = False

    def report_broker(self, error: "HeadraceError | None") -> None:
        """Whether a broker answers, as of the last poll."""
        if error is not None and not self._is_lost:
            _print(f"broker lost, trying again: {error}")
        elif error is None and self._is_lost:
            _print("back again")
        self._is_lost = error is not None

    def report_group(self, name: str, *, has_partitions: bool) -> None:
        """Whether the group has given this member something to read."""
        if has_partitions:
            self._waiting_since, self._has_said_waiting = None, False
        elif self._waiting_since is None:
            self._waiting_since = self._now()
        elif not self._has_said_waiting and self._now() - self._waiting_since >= NOTICE_SECONDS:
            _print(
                f"waiting for the group: {name} has no partitions for this member yet; "
                f"`headrace group describe {name}` shows who has them"
            )
            self._has_said_waiting = True


def _print(text: str) -> None:
    print(f"headrace: {text}", file=sys.stderr, flush=True)
