"""The watermark by which a batch leaves late rows out, known before the batch is planned.

Spark drops the late rows of batch N by the watermark of batch N-1, which stands in the checkpoint
when the source is asked for the partitions of batch N: `offsets/N` has been written by then, and
`offsets/N-1` has `batchWatermarkMs`. Handed to every row as a column, it lets a query count exactly
what it is about to leave out, in the same pass; Spark's own counter looks after rows of a window
have been added up, and misses nearly all of them.
"""

import json
import logging
from pathlib import Path
from typing import Any, Final

from headrace.spark.offsets import offsets_from

logger = logging.getLogger(__name__)

# Before the first batch nothing is late; the first moment that a timestamp can tell.
NOTHING_IS_LATE_MS: Final = -62_135_596_800_000


def late_before_ms(checkpoint: str, end: dict[str, Any]) -> int | None:
    """Rows of the batch that ends at `end` are late up to this time; None if nobody can tell."""
    directory = local(checkpoint)
    if directory is None:
        return None
    try:
        offsets = directory / "offsets"
        batch = max(int(each.name) for each in offsets.iterdir() if each.name.isdigit())
        planned = _lines(offsets / str(batch))
        # Another batch than the one that is asked for, or a query of several sources.
        if len(planned) != 3 or offsets_from(json.loads(planned[2])) != offsets_from(end):
            logger.warning("the newest batch of the checkpoint is another: batch=%d", batch)
            return None
        if batch == 0:
            return NOTHING_IS_LATE_MS
        return int(json.loads(_lines(offsets / str(batch - 1))[1])["batchWatermarkMs"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        logger.warning("no watermark in the checkpoint: path=%s error=%s", checkpoint, error)
        return None


def local(path: str) -> Path | None:
    """A path of this machine's, or None where it lies somewhere else."""
    rest = path.removeprefix("file://").removeprefix("file:")
    return None if "://" in rest else Path(rest)


def _lines(path: Path) -> list[str]:
    """Spark's version, what it notes of the batch, then a line for each source."""
    return path.read_text(encoding="utf-8").splitlines()
