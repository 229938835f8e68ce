"""The source as it is written, to options of `format("headrace")`."""

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from headrace.spark.options import COLUMNS, SOURCE_NAMES
from headrace.spark.pipeline import sections
from headrace.spark.pipeline.document import Listing, Location, Node, Scalar, Table
from headrace.spark.pipeline.fields import Fields, only_one, unknown
from headrace.spark.pipeline.model import Pairs, Source, Value, ValueFormat

_KEPT: Final = ("key", "topic", "partition", "offset", "timestamp")
_FORMATS: Final[tuple[ValueFormat, ...]] = ("raw", "string", "json", "avro")
# What the pipeline sets by itself, and the key that says so.
_OWN: Final = {
    "subscribe": "topics",
    "subscribepattern": "pattern",
    "assign": "assign",
    "startingoffsets": "from",
    "startingtimestamp": "from",
    "startingoffsetsbytimestamp": "from",
    "endingoffsets": "to",
    "endingtimestamp": "to",
    "endingoffsetsbytimestamp": "to",
    "maxoffsetspertrigger": "max_rows_per_batch",
    "includeheaders": "headers",
    "valueformat": "value",
    "valueschema": "value",
    "columns": "columns",
    "commitgroup": "commit_group",
    "deadlettertopic": "on_bad_record",
    "watermarkcheckpoint": "on_late",
    "kafka.bootstrap.servers": "bootstrap_servers",
}


def read_source(fields: Fields) -> Source:
    """The source; every option remembers the key that it comes from."""
    options: dict[str, str] = {}
    locations: dict[str, Location] = {}

    def put(name: str, value: str | None, key: str) -> None:
        if value is not None:
            options[name] = value
            locations[name.lower()] = fields.location_of(key)

    given = only_one(fields, ("topics", "pattern", "assign"), "which topics are read")
    if given == "topics":
        put("subscribe", ",".join(fields.texts("topics")), "topics")
    elif given == "pattern":
        put("subscribePattern", fields.text("pattern"), "pattern")
    elif given == "assign":
        put("assign", _json(fields.node("assign"), fields, "assign"), "assign")
    most = fields.whole("max_rows_per_batch")
    put("maxOffsetsPerTrigger", None if most is None else str(most), "max_rows_per_batch")
    value, schema_location = _value(fields)
    put("valueFormat", None if value.format == "raw" else value.format, "value")
    put("valueSchema", value.schema, "value")
    locations["valueschema"] = schema_location
    put("includeHeaders", "true" if fields.flag("headers") else None, "headers")
    for name, text, location in _passed_on(fields):
        options[name] = text
        locations[name.lower()] = location
    starting = _bound(fields, "from", "starting") or (("startingOffsets", "earliest"),)
    ending = _bound(fields, "to", "ending")
    for name, _ in (*starting, *ending):
        locations[name.lower()] = fields.location_of("from" if name.startswith("st") else "to")
    return Source(
        location=fields.location,
        options=tuple(options.items()),
        starting=starting,
        ending=ending,
        value=value,
        columns=_columns(fields),
        commit_group=fields.text("commit_group"),
        locations=tuple(locations.items()),
    )


def _value(source: Fields) -> tuple[Value, Location]:
    """What values are, and where their schema stands."""
    fields = source.section("value", sections.VALUE)
    if fields is None:
        return Value(), source.location_of("value")
    kind: ValueFormat = fields.choice("format", _FORMATS, "raw")
    schema, column = fields.text("schema"), fields.text("as")
    has_fields = kind in ("json", "avro")
    if has_fields and not fields.has("schema"):
        fields.wrong("format", f"{kind} needs 'schema', the columns of the value")
    for name in ("schema", "as"):
        if not has_fields and fields.has(name):
            fields.wrong(name, f"is for format json or avro, not {kind}")
    return Value(kind, schema, column), fields.location_of("schema")


def _columns(fields: Fields) -> tuple[str, ...]:
    if not fields.has("columns"):
        return _KEPT
    allowed = tuple(each for each in COLUMNS if each != "value")
    chosen = tuple(dict.fromkeys(fields.texts("columns")))
    for each in chosen:
        if each not in allowed:
            fields.wrong("columns", unknown(each, allowed, "a record"))
    return chosen


def _passed_on(fields: Fields) -> list[tuple[str, str, Location]]:
    node = fields.node("options")
    entries = node.entries if isinstance(node, Table) else {}
    known = {name.lower(): name for name in SOURCE_NAMES}
    for name, entry in entries.items():
        low = name.lower()
        if low in _OWN:
            fields.findings.add(entry.location, f"{name} is set by the key {_OWN[low]!r}")
        elif low not in known and not low.startswith("kafka."):
            allowed = [each for each in SOURCE_NAMES if each.lower() not in _OWN]
            fields.findings.add(entry.location, unknown(name, [*allowed, "kafka.*"], "the source"))
    # By their proper names: the source does not mind capitals, but what leaves some out does.
    return [
        (known.get(name.lower(), name.lower()), text, entries[name].location)
        for name, text in fields.pairs("options")
    ]


def _bound(fields: Fields, key: str, side: str) -> Pairs:
    """`earliest`, `latest`, a time or offsets, as options of the source."""
    node = fields.node(key)
    if node is None:
        return ()
    if isinstance(node, Scalar):
        if node.text not in ("earliest", "latest"):
            fields.wrong(key, f"{node.text!r} is not earliest, latest, {{timestamp: ...}} or "
                              "{offsets: ...}")  # fmt: skip
        return ((f"{side}Offsets", node.text or ""),)
    location = fields.section(key, sections.FROM)
    if location is None:
        return ()
    given = only_one(location, ("timestamp", "offsets"), f"{key} is one place")
    if given == "timestamp":
        time = location.text("timestamp")
        found = None if time is None else milliseconds(time)
        if time is not None and found is None:
            location.wrong("timestamp", f"{time!r} is no time such as 2026-01-31T12:00:00Z")
        return ((f"{side}Timestamp", str(found)),)
    return ((f"{side}Offsets", _json(location.node("offsets"), location, "offsets") or ""),)


def milliseconds(text: str) -> int | None:
    """ISO 8601, in UTC if it has no zone, or milliseconds since 1970; None if it is neither."""
    if re.fullmatch(r"\d{9,}", text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _json(node: Node | None, fields: Fields, key: str) -> str | None:
    """A mapping of topics, as the JSON that the source takes."""
    if not isinstance(node, Table):
        fields.wrong(key, "must be a mapping of topics")
        return None
    return json.dumps({name: _plain(entry.value) for name, entry in node.entries.items()})


def _plain(node: Node) -> Any:
    if isinstance(node, Table):
        return {name: _plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, Listing):
        return [_plain(each) for each in node.items]
    text = node.text or ""
    return int(text) if re.fullmatch(r"-?\d+", text) else text
