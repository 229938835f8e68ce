"""Calls on behalf of several owners: what one raises is logged and costs the others nothing.

For loops over listeners, waiters and connections. Whoever owns the callback must have given its
own client an answer, or closed its connection, by the time the exception comes here.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def call_each(
    logger: logging.Logger, what: str, owners: Iterable[T], call: Callable[[T], object]
) -> None:
    """Call for every owner, also for those behind one that raises."""
    for owner in owners:
        try:
            call(owner)
        except Exception:
            logger.exception("a call failed, the others go on: of=%s", what)
