"""Which differences `docs/compatibility.md` allows, read from its table.

The rows between the two comment markers have five cells: API, versions (`all`, `4` or `4-7`), step
(a pattern over `script: label`), field (a pattern over the path) and the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.differential.compare import Difference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
_START, _END = "<!-- differences -->", "<!-- end of differences -->"


@dataclass(frozen=True, slots=True)
class Allowed:
    """One row of the page: differences that are known, and why they stay."""

    api: str
    lowest_version: int
    highest_version: int
    step: str
    field: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        """Whether this row speaks of that difference."""
        return (
            self.api in ("*", difference.api)
            and self.lowest_version <= difference.version <= self.highest_version
            and fnmatchcase(f"{difference.script}: {difference.label}", self.step)
            and fnmatchcase(difference.path, self.field)
        )


def allowed(page: Path = PAGE) -> list[Allowed]:
    """Every row of the page's table."""
    text = page.read_text(encoding="utf-8")
    table = text.split(_START, 1)[1].split(_END, 1)[0]
    return list(_rows(table))


def _rows(table: str) -> Iterator[Allowed]:
    lines = [line.strip() for line in table.splitlines() if line.strip().startswith("|")]
    for line in lines[2:]:
        api, versions, step, field, reason = (
            cell.strip().strip("`") for cell in line.strip("|").split("|")
        )
        if not reason:
            raise ValueError(f"a difference without a reason: {line}")
        low, _, high = versions.partition("-")
        span = (0, 99) if versions == "all" else (int(low), int(high or low))
        yield Allowed(api, *span, step, field, reason)
