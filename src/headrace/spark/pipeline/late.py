"""Which step leaves late rows out first, and whether they can be counted there exactly."""

from typing import Final

from headrace.spark.pipeline.model import Dedup, Sink, Spec, Sql, Stateful, Step, Window
from headrace.spark.pipeline.rules import output_mode

# Where it is off, Spark drops by the watermark of the batch itself, which is not known beforehand.
_BY_BATCH_BEFORE: Final = "spark.sql.streaming.statefulOperator.allowMultiple"


def leaves_late_out(step: Step, mode: str) -> bool:
    """Whether a step drops rows by a watermark; all windows are kept in mode complete."""
    match step:
        case Window():
            return step.watermark is not None and mode != "complete"
        case Dedup():
            return True
        case Stateful():
            return step.watermark is not None
        case _:
            return False


def may_lose_late(spec: Spec, sink: Sink) -> bool:
    """Whether any row of a sink's query can come too late."""
    mode = output_mode(sink)
    return any(leaves_late_out(step, mode) for step in spec.steps_of(sink))


def counting_step(spec: Spec, sink: Sink) -> Step | None:
    """The step before which late rows are counted; None where nobody could, or there are none.

    The watermark travels with the rows as a column. A query in SQL chooses its columns, so what it
    gives out has lost it, and so has what was aggregated or kept as state before.
    """
    if dict(spec.spark_settings).get(_BY_BATCH_BEFORE, "true").lower() == "false":
        return None
    mode = output_mode(sink)
    for step in spec.steps_of(sink):
        if leaves_late_out(step, mode):
            return step
        if isinstance(step, Sql | Window | Stateful):
            return None
    return None
