"""A pipeline printed as the Python that it amounts to."""

from collections.abc import Iterable
from typing import Final

from headrace.spark.pipeline.calls import Call, Get, Name, assignment_of, options, source_of
from headrace.spark.pipeline.compiler import Line, Program, streaming_program
from headrace.spark.pipeline.model import Spec

# What a program may use, and where that comes from.
_IMPORTS: Final = {
    "F": "from pyspark.sql import functions as F",
    "count_late": "from headrace.spark.late_rows import count_late",
    "upsert": "from headrace.spark import upsert",
    "load_function": "from headrace.spark.pipeline.functions import load_function",
    "load_processor": "from headrace.spark.pipeline.functions import load_processor",
    "read_table": "from headrace.spark.pipeline.tables import read_table",
    "each_batch": "from headrace.spark.sink import each_batch",
}


def plan(spec: Spec, servers: str, *, once: bool) -> str:
    """All queries of a pipeline, as a program."""
    programs = [streaming_program(spec, sink, servers, once=once) for sink in spec.sinks]
    used = set[str]()
    for program in programs:
        for line in (*program.lines, program.write):
            used |= _names(line.value)
    imports = [text for name, text in _IMPORTS.items() if name in used]
    imports.append("from headrace.spark.session import session")
    settings = source_of(options(spec.spark_settings)) if spec.spark_settings else ""
    start = f'spark = session("{spec.name}"' + (f", settings={settings}" if settings else "") + ")"
    parts = [*imports, "", start]
    for program in programs:
        parts += ["", f"# {spec.query_name(program.sink)}", *_written(program)]
    queries = ", ".join(program.write.target or "" for program in programs)
    parts += ["", f"for query in [{queries}]:", "    query.awaitTermination()"]
    return "\n".join(parts) + "\n"


def _written(program: Program) -> list[str]:
    return [_line(each) for each in (*program.lines, program.write)]


def _line(line: Line) -> str:
    if line.target is None:
        return source_of(line.value)
    return assignment_of(line.target, line.value)


def _names(expression: object) -> set[str]:
    match expression:
        case Name(text):
            return {text}
        case Get(of, _):
            return _names(of)
        case Call(on, name, arguments, named):
            found = {name} if on is None else _names(on)
            return found | _all_names(arguments) | _all_names(value for _, value in named)
        case _:
            return set()


def _all_names(expressions: Iterable[object]) -> set[str]:
    return set().union(*(_names(each) for each in expressions))
