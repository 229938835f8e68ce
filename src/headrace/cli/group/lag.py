"""How far a group is behind, as its commands say it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.output import counted

if TYPE_CHECKING:
    from headrace.client import PartitionLag


def total_lag(lags: "Sequence[PartitionLag]") -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [each.lag for each in lags if each.lag is not None]
    return sum(known) if known else None


def deleted_note(deleted: int) -> str:
    """What to say of a group whose commits are below the start of the log."""
    return (
        f"committed below the log start; {counted(deleted, 'offset')} deleted before it read them"
    )
