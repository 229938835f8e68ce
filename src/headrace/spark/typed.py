"""Values as columns: JSON, Avro and text decoded in the reader, and which of them were bad.

A value that cannot be read becomes null and its reason is kept by row: what happens to it is for
the caller to say. A null value (a tombstone) is null, and not bad.
"""

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.core.errors import InvalidConfig
from headrace.spark.avro_schema import as_spark_reads, avro_to_ddl
from headrace.spark.bad_values import BadValues, one_by_one, reason
from headrace.spark.ddl import require_columns
from headrace.spark.json_values import json_reader
from headrace.spark.options import Values

ValueReader = Callable[[pa.Array], tuple[pa.Array, BadValues]]


def value_type_ddl(values: Values) -> str:
    """The type of the value column, as Spark writes types."""
    if values.format == "raw":
        return "binary"
    if values.format == "string":
        return "string"
    assert values.schema is not None
    if values.format == "avro":
        return avro_to_ddl(avro_schema(values.schema))
    text = values.schema.strip()
    if not text.startswith("{"):
        require_columns(text, "valueSchema")
        return f"struct<{text}>"
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(text)).simpleString()
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidConfig(
            "valueSchema is neither columns such as 'user string, item int' nor the JSON of a "
            f"StructType: {error}"
        ) from error


def value_reader(values: Values, kind: pa.DataType | None) -> ValueReader:
    """What turns bytes into the value column; `kind` None where nobody looks at the result."""
    if values.format == "raw":
        return lambda raw: (raw, {})
    if values.format == "string":
        return _texts
    if values.format == "avro":
        assert values.schema is not None
        return _avro_reader(values.schema, kind)
    assert kind is not None, "the options see to it that JSON is read into a column"
    return json_reader(kind)


def _texts(raw: pa.Array) -> tuple[pa.Array, BadValues]:
    try:
        return raw.cast(pa.string()), {}
    except pa.ArrowInvalid:
        return one_by_one(raw.to_pylist(), lambda value: value.decode(), _builder(pa.string()))


def _builder(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, kind)


def avro_schema(text: str) -> Any:
    """The Avro schema that an option holds, parsed."""
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            "valueFormat=avro needs fastavro: pip install 'headrace[avro]'"
        ) from error
    try:
        return fastavro.parse_schema(as_spark_reads(json.loads(text)))
    except Exception as error:  # the library has no common root for what it raises
        raise InvalidConfig(f"valueSchema is no Avro schema in JSON: {reason(error)}") from error


def _avro_reader(text: str, kind: pa.DataType | None) -> ValueReader:
    import fastavro

    schema = avro_schema(text)

    def read(value: bytes) -> Any:
        stream = io.BytesIO(value)
        found = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left behind the Avro value")
        return found

    def read_all(raw: pa.Array) -> tuple[pa.Array, BadValues]:
        values = raw.to_pylist()
        if kind is None:
            return one_by_one(values, lambda value: read(value) and None, _builder(pa.null()))
        return one_by_one(values, read, _builder(kind))

    return read_all
