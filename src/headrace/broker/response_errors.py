"""Find the error codes in an answer, wherever its message keeps them.

Compiled once per message class, like its codec: a loop per level of nesting, and nothing for
what cannot hold an error. An answer about one partition costs a tenth of a microsecond.
"""

from collections.abc import Callable
from typing import Any

from headrace.protocol.message import Message, Struct

CountErrors = Callable[[Any, dict[int, int]], None]

_compiled: dict[type[Message], CountErrors] = {}


def errors_counter(cls: type[Message]) -> CountErrors:
    """A function that adds the errors of an answer of this class to counts by code."""
    found = _compiled.get(cls)
    if found is None:
        lines = ["def count_errors(v0, counts):", *_lines(cls, "v0", 1), "    return"]
        scope: dict[str, Any] = {}
        exec(compile("\n".join(lines), f"<errors of {cls.__name__}>", "exec"), scope)
        found = _compiled[cls] = scope["count_errors"]
    return found


def _lines(cls: type[Struct], value: str, depth: int) -> list[str]:
    indent = "    " * depth
    lines: list[str] = []
    for name, field in cls.fields_declared.items():
        if name == "error_code":
            lines += [
                f"{indent}if {value}.error_code:",
                f"{indent}    counts[{value}.error_code] = counts.get({value}.error_code, 0) + 1",
            ]
        elif field.kind == "array" and field.item.kind == "struct":
            inner = _lines(field.item.item, f"v{depth}", depth + 1)
            if inner:
                lines += [f"{indent}for v{depth} in {value}.{name} or ():", *inner]
    return lines
