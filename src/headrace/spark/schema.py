"""The columns that a read has, as Spark writes them."""

from collections.abc import Mapping
from typing import Final

from headrace.spark.options import ERROR, HEADERS, LATE_BEFORE, RAW, column_options
from headrace.spark.typed import value_type_ddl

_TYPES: Final = {
    "key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
    ERROR: "string",
    RAW: "binary",
    LATE_BEFORE: "timestamp",
}


def source_ddl(options: Mapping[str, str]) -> str:
    """The schema of a read with these options."""
    names, values = column_options(options)
    types = {**_TYPES, "value": value_type_ddl(values)}
    return ", ".join(f"`{name}` {types[name]}" for name in names)
