"""What is wrong, out of the many lines that Spark says about it."""

import re
from typing import Final

_TRACE: Final = "Traceback (most recent call last):"
_MODULE: Final = re.compile(r"^(\w+\.)+(?=\w+:)")


def reason_in(text: str) -> str:
    """The one line that says it, without the plans and traces around it; empty if there is none."""
    text = text.partition("=== Streaming Query ===")[0]
    if _TRACE in text:  # Python on a worker or the planner: what was raised follows its trace
        trace = text.rpartition(_TRACE)[2].splitlines()
        raised = [line for line in trace if line and not line[0].isspace()]
        return _MODULE.sub("", raised[0]) if raised else _TRACE
    lines = [line.strip(": ") for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # of Java's, with the call that led to it before it
    return lines[0].partition(" SQLSTATE:")[0].rstrip(";") if lines else ""
