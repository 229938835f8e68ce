"""`headrace archive verify PATH`: does an archive have every offset, each once?"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.archive.needs import require_arrow
from headrace.cli.options import Output, wants_json
from headrace.cli.output import print_json, print_table

if TYPE_CHECKING:
    from headrace.spark.archive import PartitionFindings

_GAPS_SHOWN = 5


def register(group: typer.Typer) -> None:
    group.command()(verify)


def verify(
    path: Annotated[Path, typer.Argument(help="A Delta table or a directory of Parquet files.")],
    output: Output = "table",
) -> None:
    """Look for offsets that are missing or there twice, and for files that cannot be read; exit 1
    if there are any.

    Transactions and compaction leave gaps in a topic itself: such an archive has them too.
    """
    as_json = wants_json(output)
    require_arrow()
    from headrace.spark.archive import ArchiveDamaged
    from headrace.spark.archive import verify as look

    try:
        found = look(path)
    except ArchiveDamaged as error:
        if error.findings:
            _show(error.findings, as_json=as_json)
        raise
    _show(found, as_json=as_json)
    if not all(each.is_whole for each in found):
        sys.exit(1)


def _show(found: "Sequence[PartitionFindings]", *, as_json: bool) -> None:
    if as_json:
        print_json([_as_json(each) for each in found])
    else:
        print_table(
            ["topic", "partition", "rows", "first", "last", "duplicates", "gaps"],
            [_row(each) for each in found],
        )


def _as_json(found: "PartitionFindings") -> dict[str, object]:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "rows": found.rows,
        "first_offset": found.first,
        "last_offset": found.last,
        "duplicates": found.duplicates,
        "gaps": [{"first_offset": first, "last_offset": last} for first, last in found.gaps],
    }


def _row(found: "PartitionFindings") -> list[object]:
    shown = [f"{first}-{last}" for first, last in found.gaps[:_GAPS_SHOWN]]
    more = len(found.gaps) - len(shown)
    gaps = " ".join(shown + ([f"and {more} more"] if more else [])) or "none"
    return [
        found.topic,
        found.partition,
        found.rows,
        found.first,
        found.last,
        found.duplicates,
        gaps,
    ]
