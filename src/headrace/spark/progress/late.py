"""How many rows of a query came too late, over the batches of a run."""

from dataclasses import dataclass

from headrace.spark.progress.figures import whole
from headrace.spark.progress.measures import Progress


@dataclass(slots=True)
class LateRows:
    """The sum of what batches told; see `Progress` for what each is."""

    late: int = 0
    rows: int = 0
    partly: int = 0
    is_exact: bool = True

    def add(self, progress: Progress) -> None:
        if progress.late is None:
            return
        self.late += progress.late
        self.rows += progress.late_of
        self.partly += progress.late_partly
        self.is_exact &= progress.late_is_exact

    @property
    def share(self) -> float:
        """Of all rows that came to where late ones are left out."""
        return self.late / self.rows if self.rows else 0.0

    def __str__(self) -> str:
        late = whole(self.late) if self.late or not self.is_exact else "none"
        if not self.is_exact:
            late = f"at least {late}"
        said = f"{late} of {whole(self.rows)} rows came too late"
        if self.late:
            said += f" ({percent(self.share)})"
        if self.partly:
            said += f", and {whole(self.partly)} more for some of their windows"
        return said


def in_short(progress: Progress) -> str | None:
    """What a batch left out, for its line; None where there is nothing to tell."""
    if progress.late is None or (
        progress.late_is_exact and not progress.late | progress.late_partly
    ):
        return None
    least = "" if progress.late_is_exact else "at least "
    partly = f" and {whole(progress.late_partly)} in part" if progress.late_partly else ""
    return f"late {least}{whole(progress.late)}{partly} of {whole(progress.late_of)} rows"


def percent(share: float) -> str:
    """A share as people write it; a little is never told as nothing."""
    return "under 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
