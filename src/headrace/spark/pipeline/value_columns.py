"""Which columns the fields of a value become, known before Spark is started."""

import json
from typing import Final

from headrace.core.errors import InvalidConfig
from headrace.spark.options import ERROR, HEADERS, RAW
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.model import Source, Value
from headrace.spark.typed import avro_schema

_OPEN: Final = "<("
_CLOSE: Final = ">)"


def record_columns(source: Source, *, with_errors: bool) -> tuple[str, ...]:
    """Columns beside the value, in their order."""
    found = list(source.columns)
    if dict(source.options).get("includeHeaders") == "true":
        found.append(HEADERS)
    if with_errors and source.value.format != "raw":
        found += [ERROR, RAW]
    return tuple(found)


def refuse_hidden_columns(source: Source, findings: Findings) -> None:
    """Two columns of one name cannot be told apart in SQL."""
    value = source.value
    if not value.has_fields:
        return
    location = source.location_of_option("valueSchema")
    try:
        names = (value.column,) if value.column is not None else field_names(value)
    except InvalidConfig as error:
        findings.add(location, str(error))
        return
    others = {each.lower() for each in record_columns(source, with_errors=True)}
    for name in names:
        if name.lower() in others:
            other = "choose another name" if value.column else "set `as: value` for value.FIELD"
            findings.add(
                location,
                f"the value has a field {name!r}, and so has the record: {other}, or leave the "
                "record's out by source.columns",
            )


def field_names(value: Value) -> tuple[str, ...]:
    """The names of a value's fields, in their order."""
    text = (value.schema or "").strip()
    if value.format == "avro":
        return tuple(each["name"] for each in avro_schema(text).get("fields", ()))
    if text.startswith("{"):
        try:
            return tuple(each["name"] for each in json.loads(text)["fields"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidConfig(f"schema is not the JSON of a StructType: {error}") from error
    return tuple(_name(each) for each in _split(text))


def _name(column: str) -> str:
    column = column.strip()
    if column.startswith("`"):
        return column[1 : column.index("`", 1)]
    return column.replace(":", " ", 1).split()[0]


def _split(text: str) -> list[str]:
    """Columns apart at their commas, those within types left alone."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if quote or depth or not all(each.strip() for each in parts):
        raise InvalidConfig(f"schema {text!r} is not columns such as 'user string, item int'")
    return parts
