"""Sinks as they are written, to sinks as they are meant."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.spark.pipeline import sections
from headrace.spark.pipeline.document import Findings, Listing, Location, Node, Table
from headrace.spark.pipeline.fields import Fields, only_one
from headrace.spark.pipeline.model import (
    ConsoleTarget,
    DeltaTarget,
    Mode,
    ParquetTarget,
    Sink,
    Target,
    TopicTarget,
    Upsert,
)
from headrace.spark.pipeline.read_steps import located, read_steps

KINDS: Final = ("topic", "delta", "parquet", "console")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MODES: Final[tuple[Mode, ...]] = ("append", "update", "complete")
_ROWS_SHOWN: Final = 20
# Offsets alone tell nothing of a key whose partition has changed.
_NEWEST_BY: Final = ("timestamp", "offset")


def read_sinks(nodes: tuple[Node, ...], base: Path, findings: Findings) -> tuple[Sink, ...]:
    """The sinks of a list; each has a name that no other has."""
    found: dict[str, Sink] = {}
    for node in nodes:
        sink = _read_sink(node, base, findings)
        if sink is None:
            continue
        if sink.name in found:
            line = found[sink.name].location.line
            findings.add(
                sink.location,
                f"the sink of line {line} is called {sink.name!r} too: give this one a name, "
                "beside its kind",
            )
        found.setdefault(sink.name, sink)
    return tuple(found.values())


def _read_sink(node: Node, base: Path, findings: Findings) -> Sink | None:
    if not isinstance(node, Table):
        findings.add(node.location, f"a sink is a mapping with one of {', '.join(KINDS)}")
        return None
    fields = Fields(node, sections.SINK, findings)
    kind = only_one(fields, KINDS, "a sink is one place")
    if kind is None:
        return None
    name = fields.text("name") or kind
    if not NAME.fullmatch(name):
        fields.wrong("name", f"{name!r} must be made of a-z, 0-9, -, _ and .")
    steps = read_steps(fields.listing("steps"), base, findings)
    target = _READERS[kind](fields, fields.location_of(kind), base)
    if target is None:
        return None
    return Sink(name, fields.location_of(kind), target, steps, _locations(fields.node(kind)))


def _locations(node: Node | None, within: str = "") -> tuple[tuple[str, Location], ...]:
    """Where the keys of a target stand, those of mappings in it too."""
    found: list[tuple[str, Location]] = []
    for name, entry in node.entries.items() if isinstance(node, Table) else ():
        found += [(within + name, entry.location), *_locations(entry.value, f"{within}{name}.")]
    return tuple(found)


def _topic(sink: Fields, location: Location, base: Path) -> Target | None:  # noqa: ARG001
    fields = sink.section("topic", sections.TOPIC)
    if fields is None:
        return None
    is_list = isinstance(fields.node("key"), Listing)
    delivery = fields.text("delivery") or "at-least-once"
    return TopicTarget(
        location=location,
        topic=fields.text("name") or "",
        key=fields.texts("key") if is_list else fields.text("key"),
        value=fields.text("value") or "json",
        headers=fields.text("headers"),
        mode=fields.choice("mode", _MODES, "append"),
        options=(("delivery", delivery), *fields.pairs("options")),
    )


def _delta(sink: Fields, location: Location, base: Path) -> Target | None:
    fields = sink.section("delta", sections.DELTA)
    if fields is None:
        return None
    if fields.has("upsert") and fields.has("mode"):
        fields.wrong("mode", "an upsert has no mode: changed rows are merged into the table")
    return DeltaTarget(
        location=location,
        path=located(fields.text("path") or "", base),
        partition_by=fields.texts("partition_by"),
        mode=fields.choice("mode", ("append", "complete"), "append"),
        other_queries=fields.choice("other_queries", ("refuse", "append"), "refuse"),
        upsert=_upsert(fields),
    )


def _upsert(delta: Fields) -> Upsert | None:
    fields = delta.section("upsert", sections.UPSERT)
    if fields is None:
        return None
    return Upsert(
        location=delta.location_of("upsert"),
        on=fields.texts("on"),
        delete_when=fields.text("delete_when"),
        newest_by=fields.texts("newest_by") or _NEWEST_BY,
        columns=fields.texts("columns"),
    )


def _parquet(sink: Fields, location: Location, base: Path) -> Target | None:
    fields = sink.section("parquet", sections.PARQUET)
    if fields is None:
        return None
    return ParquetTarget(
        location, located(fields.text("path") or "", base), fields.texts("partition_by")
    )


def _console(sink: Fields, location: Location, base: Path) -> Target | None:  # noqa: ARG001
    if sink.node("console") is None:
        return ConsoleTarget(location, _ROWS_SHOWN, "append")
    fields = sink.section("console", sections.CONSOLE)
    if fields is None:
        return None
    return ConsoleTarget(
        location, fields.whole("rows") or _ROWS_SHOWN, fields.choice("mode", _MODES, "append")
    )


_READERS: Final[dict[str, Callable[[Fields, Location, Path], Target | None]]] = {
    "topic": _topic,
    "delta": _delta,
    "parquet": _parquet,
    "console": _console,
}
