"""Regular expressions of subscriptions: RE2 syntax, matched in linear time.

A pattern comes from a client and is run by the broker over every topic name, so an engine that
can be made to take exponential time would let one client stop everybody. The engine is loaded
with the first pattern.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from headrace.core.errors import ApiError, ErrorCode


def check(pattern: str) -> None:
    """Refuse what is no regular expression."""
    _compiled(pattern)


def matching(
    pattern: str, names: Iterable[str], can_describe: Callable[[str], bool]
) -> frozenset[str]:
    """The topics whose whole name matches and whom the subscriber may know of.

    Internal topics are topics like others here; so they are for Kafka.
    """
    matches = _compiled(pattern).fullmatch
    return frozenset(name for name in names if matches(name) and can_describe(name))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2  # type: ignore[import-untyped]  # google-re2 carries no type hints

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
        ) from None
