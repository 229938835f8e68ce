"""Avro schemas as Spark types, by the table of Spark's own Avro support."""

from typing import Any, Final

from headrace.core.errors import InvalidConfig

_PLAIN: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
# Types for which Spark has no column: it leaves them as what they are written as, and so do we.
_UNKNOWN_TO_SPARK: Final = ("uuid", "time-millis", "time-micros")


def as_spark_reads(schema: Any) -> Any:
    """A schema, not yet parsed, by which values have the types that Spark's Avro gives them."""
    if isinstance(schema, list):
        return [as_spark_reads(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: as_spark_reads(part)
        for name, part in schema.items()
        if name != "logicalType" or part not in _UNKNOWN_TO_SPARK
    }


def avro_to_ddl(schema: Any) -> str:
    """The Spark type of an Avro schema that has been parsed; the outermost must be a record."""
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise InvalidConfig("valueSchema: the outermost Avro type must be a record")
    return _ddl(schema, {})


def _ddl(schema: Any, named: dict[str, str]) -> str:
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in named:
            return named[schema]
        raise InvalidConfig(f"valueSchema: Avro type {schema!r} is not supported here")
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, (dict, list)):
        return _ddl(kind, named)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if kind in ("record", "error"):
        parts = ",".join(
            f"`{field['name']}`:{_ddl(field['type'], named)}" for field in schema["fields"]
        )
        return _remembered(schema, f"struct<{parts}>", named)
    if kind == "array":
        return f"array<{_ddl(schema['items'], named)}>"
    if kind == "map":
        return f"map<string,{_ddl(schema['values'], named)}>"
    return _remembered(schema, _ddl(kind, named), named)


def _remembered(schema: dict[str, Any], ddl: str, named: dict[str, str]) -> str:
    """Avro writes a named type once and then only its name."""
    if "name" in schema:
        named[schema["name"]] = ddl
    return ddl


def _union(schema: list[Any], named: dict[str, str]) -> str:
    others = [each for each in schema if each != "null"]
    if len(others) == 1:
        return _ddl(others[0], named)
    raise InvalidConfig("valueSchema: an Avro union may be of null and one other type")
