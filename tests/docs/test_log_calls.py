"""Every log call of the source has the form from which the fields are read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.node.log_lines import parse_template

SOURCE = Path(__file__).resolve().parents[2] / "src" / "headrace"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
# What a JSON line says of itself.
TAKEN = {"time", "level", "logger", "message", "exception"}


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "logger"
                and node.func.attr in LEVELS
            ):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node


def problem(call: ast.Call) -> str | None:
    template, *values = call.args
    if not isinstance(template, ast.Constant) or not isinstance(template.value, str):
        return "the template must be a constant text"
    shape = parse_template(template.value)
    if shape is None:
        return f"{template.value!r} is not `sentence: name=%s name=%d`"
    names = [name for name, _ in shape.fields]
    starred = any(isinstance(value, ast.Starred) for value in values)
    if not starred and len(values) != len(names):
        return f"{len(values)} values for {len(names)} names"
    if len(set(names)) != len(names) or TAKEN.intersection(names):
        return f"names that are taken or come twice: {names}"
    return None


def test_a_log_call_is_a_sentence_and_named_values() -> None:
    calls = dict(log_calls())
    assert len(calls) > 40
    assert {place: why for place, call in calls.items() if (why := problem(call))} == {}


def test_loggers_are_called_logger() -> None:
    """So that the test above finds every call."""
    for path in SOURCE.rglob("*.py"):
        for name in re.findall(
            r"(\w+)\s*=\s*(?:logging\.)?getLogger\(__name__\)", path.read_text()
        ):
            assert name == "logger", path
