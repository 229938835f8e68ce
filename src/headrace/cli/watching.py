"""What a consumer tells people on stderr while it has no records to show."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.errors import HeadraceError

PATIENCE_SECONDS = 2


class Watch:
    """Says once that the broker is lost, or the group busy, and once that it is over."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._is_lost = False
        self._waiting_since: float | None = None
        self._has_said_waiting = False

    def broker(self, trouble: "HeadraceError | None") -> None:
        """Whether a broker answers, as of the last poll."""
        if trouble is not None and not self._is_lost:
            _say(f"broker lost, trying again: {trouble}")
        elif trouble is None and self._is_lost:
            _say("back again")
        self._is_lost = trouble is not None

    def group(self, name: str, *, has_partitions: bool) -> None:
        """Whether the group has given this member something to read."""
        if has_partitions:
            self._waiting_since, self._has_said_waiting = None, False
        elif self._waiting_since is None:
            self._waiting_since = self._now()
        elif not self._has_said_waiting and self._now() - self._waiting_since >= PATIENCE_SECONDS:
            _say(
                f"waiting for the group: {name} has no partitions for this member yet; "
                f"`headrace group describe {name}` shows who has them"
            )
            self._has_said_waiting = True


def _say(text: str) -> None:
    print(f"headrace: {text}", file=sys.stderr, flush=True)
