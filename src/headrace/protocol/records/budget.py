"""How much work on records may be done in one piece.

A few kilobytes can unfold to a hundred megabytes, and to millions of records. Whoever looks at
records on an event loop gives a budget: what is announced is taken from it before anything is
unfolded or walked over, and what is too much is raised as `OverBudget`, to be done elsewhere.
Without a budget (in a worker) all is done at once.
"""

from typing import Protocol


class OverBudget(Exception):
    """To be done in a worker; nothing has been changed."""


class Budget(Protocol):
    """Bytes of records, uncompressed, that may still be looked at."""

    @property
    def left(self) -> int: ...

    def spend(self, count: int) -> None:
        """Take as much from what is left; raises `OverBudget` if there is less."""
