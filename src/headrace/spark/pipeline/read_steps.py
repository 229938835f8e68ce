"""Steps as they are written, to steps as they are meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.spark.pipeline import sections
from headrace.spark.pipeline.document import Findings, Location, Node, Scalar, Table
from headrace.spark.pipeline.fields import Fields, only_one
from headrace.spark.pipeline.model import (
    Dedup,
    Filter,
    Join,
    Python,
    Select,
    Sql,
    Stateful,
    Step,
    TableFormat,
    Timers,
    Window,
)

_TABLES: Final[tuple[TableFormat, ...]] = ("parquet", "csv", "delta", "json")
_TIMERS: Final[tuple[Timers, ...]] = ("none", "processing-time", "event-time")


def located(path: str, base: Path) -> str:
    """A path of the file: relative ones start at the file's directory, addresses stay."""
    if "://" in path:
        return path
    return str((base / path).absolute())


def read_steps(nodes: tuple[Node, ...], base: Path, findings: Findings) -> tuple[Step, ...]:
    """The steps of a list; those that are wrong are left out and told."""
    found = [_read_step(node, base, findings) for node in nodes]
    return tuple(each for each in found if each is not None)


def _read_step(node: Node, base: Path, findings: Findings) -> Step | None:
    kinds = sections.STEP.names
    if not isinstance(node, Table):
        findings.add(node.location, f"a step is a mapping with one of {', '.join(kinds)}")
        return None
    fields = Fields(node, sections.STEP, findings)
    kind = only_one(fields, kinds, "a step does one thing", needed=not node.entries)
    if kind is None:
        return None
    before = len(findings.problems)
    step = _READERS[kind](fields, fields.location_of(kind), base)
    return step if len(findings.problems) == before else None


def _filter(fields: Fields, location: Location, base: Path) -> Step:  # noqa: ARG001
    return Filter(location, fields.text("filter") or "")


def _select(fields: Fields, location: Location, base: Path) -> Step:  # noqa: ARG001
    return Select(location, fields.texts("select"), fields.parts("select"))


def _sql(fields: Fields, location: Location, base: Path) -> Step:  # noqa: ARG001
    node = fields.node("sql")
    first_line = node.first_line if isinstance(node, Scalar) else None
    return Sql(location, fields.text("sql") or "", first_line)


def _window(step: Fields, location: Location, base: Path) -> Step | None:  # noqa: ARG001
    fields = step.section("window", sections.WINDOW)
    if fields is None:
        return None
    kind = only_one(fields, ("size", "session"), "a window has a size, a session a gap")
    if kind == "session" and fields.has("slide"):
        fields.wrong("slide", "sessions do not slide; leave it out")
    if not fields.pairs("agg") and fields.has("agg"):
        fields.wrong("agg", "is empty; it holds columns to compute, as n: count(*)")
    return Window(
        location=location,
        time=fields.text("time") or "",
        size=fields.duration("size"),
        slide=fields.duration("slide"),
        session=fields.duration("session"),
        watermark=fields.duration("watermark"),
        by=fields.texts("by"),
        agg=fields.pairs("agg"),
        parts=(*fields.parts("time"), *fields.parts("by"), *fields.parts("agg")),
    )


def _dedup(step: Fields, location: Location, base: Path) -> Step | None:  # noqa: ARG001
    fields = step.section("dedup", sections.DEDUP)
    if fields is None:
        return None
    return Dedup(
        location=location,
        by=fields.texts("by"),
        time=fields.text("time") or "",
        watermark=fields.duration("watermark") or "",
    )


def _join(step: Fields, location: Location, base: Path) -> Step | None:
    fields = step.section("join", sections.JOIN)
    table = fields and fields.section("table", sections.TABLE)
    if fields is None or table is None:
        return None
    kind: TableFormat = table.choice("format", _TABLES, "parquet")
    if kind == "delta" and table.has("options"):
        table.wrong("options", "a Delta table is read without options; leave them out")
    return Join(
        location=location,
        format=kind,
        path=located(table.text("path") or "", base),
        options=table.pairs("options"),
        on=fields.texts("on"),
        how=fields.choice("how", ("left", "inner", "semi", "anti"), "left"),
    )


def _python(step: Fields, location: Location, base: Path) -> Step | None:
    fields = step.section("python", sections.PYTHON)
    if fields is None:
        return None
    return Python(location, _function(fields, base), fields.text("schema") or "")


def _stateful(step: Fields, location: Location, base: Path) -> Step | None:
    fields = step.section("stateful", sections.STATEFUL)
    if fields is None:
        return None
    timers: Timers = fields.choice("timers", _TIMERS, "none")
    for name in ("time", "watermark"):
        if timers == "event-time" and not fields.has(name):
            fields.wrong("timers", f"event-time needs {name!r} too")
        if timers != "event-time" and fields.has(name):
            fields.wrong(name, "is for timers: event-time; leave it out")
    return Stateful(
        location=location,
        function=_function(fields, base),
        by=fields.texts("by"),
        schema=fields.text("schema") or "",
        timers=timers,
        time=fields.text("time"),
        watermark=fields.duration("watermark"),
    )


def _function(fields: Fields, base: Path) -> str:
    """`FILE.py:NAME` with the file's whole path, or `MODULE:NAME` as it is."""
    text = fields.text("function")
    if text is None:
        return ""
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name.isidentifier():
        fields.wrong("function", f"{text!r} is neither FILE.py:NAME nor MODULE:NAME")
        return text
    if not where.endswith(".py"):
        return text
    path = located(where, base)
    if not Path(path).is_file():
        fields.wrong("function", f"there is no file {path}")
    return f"{path}:{name}"


_READERS: Final[dict[str, Callable[[Fields, Location, Path], Step | None]]] = {
    "filter": _filter,
    "select": _select,
    "sql": _sql,
    "window": _window,
    "dedup": _dedup,
    "join": _join,
    "python": _python,
    "stateful": _stateful,
}
