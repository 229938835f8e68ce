"""Values decoded in the reader: good ones become columns, bad ones say why, none is lost."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import re
import sys
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidConfig
from headrace.spark import json_values
from headrace.spark.avro_schema import avro_to_ddl
from headrace.spark.bad_values import one_by_one
from headrace.spark.json_values import json_reader
from headrace.spark.options import Values
from headrace.spark.typed import avro_schema, value_reader, value_type_ddl

CLICK = pa.struct([("user", pa.string()), ("item", pa.int32()), ("price", pa.float64())])


def raw(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def as_json(kind: pa.DataType, *documents: Any) -> list[Any]:
    """What documents come to, which must all be good."""
    found, bad = json_reader(kind)(raw(*(json.dumps(each).encode() for each in documents)))
    assert bad == {}
    assert found.type == kind
    return list(found.to_pylist())


def test_json_becomes_columns_and_what_is_missing_is_null() -> None:
    found = as_json(CLICK, {"user": "a", "item": 1, "price": 2}, {"item": None, "more": [1]}, {})
    assert found == [
        {"user": "a", "item": 1, "price": 2.0},
        {"user": None, "item": None, "price": None},
        {"user": None, "item": None, "price": None},
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"{", "truncated"),
        (b"", "truncated"),
        (b"[1]", "Expected `object`"),
        (b'{"item":"x"}', r"Expected `int \| null`.*item"),
        (b'{"item":2147483648}', "2147483647"),
        (b'{"item":1.5}', "Expected `int"),
        (b'{"user":"a"} {"user":"b"}', "trailing"),
        (b'{"user":"\xff"}', "utf-8"),
    ],
)
def test_a_bad_document_is_told_and_takes_no_other_with_it(value: bytes, said: str) -> None:
    good = b'{"user":"a","item":1,"price":1.5}'
    found, bad = json_reader(CLICK)(raw(good, value, None, good))
    assert [row is None for row in found.to_pylist()] == [False, True, True, False]
    assert list(bad) == [1], "a null value is null, and not bad"
    assert re.search(said, bad[1], re.IGNORECASE), bad[1]


TIMES = pa.struct([("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us"))])
TIME_LISTS = pa.struct([("at", pa.list_(pa.timestamp("us", tz="UTC")))])
NUMBERS = pa.struct([("small", pa.float32()), ("exact", pa.decimal128(10, 2))])


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (CLICK, b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        (TIMES, b'{"at":"0001-01-01T00:00:00+14:00"}', "years 1 to 9999"),
        (TIMES, b'{"at":"9999-12-31T23:59:59-12:00"}', "years 1 to 9999"),
        (TIME_LISTS, b'{"at":["9999-12-31T23:59:59-12:00"]}', "years 1 to 9999"),
        (TIMES, b'{"local":"2024-05-06T07:08:09+02:00"}', "no timezone"),
        (NUMBERS, b'{"small":1e300}', "Expected `float`"),
        (NUMBERS, b'{"small":-3.4028236e38}', "Expected `float`"),
        (NUMBERS, b'{"exact":"NaN"}', "decimal128"),
        (NUMBERS, b'{"exact":1e999999}', "decimal128"),
    ],
)
def test_what_is_valid_json_and_fits_no_column_is_bad(
    kind: pa.DataType, value: bytes, said: str
) -> None:
    found, bad = json_reader(kind)(raw(b"{}", value, None, b"{}", value, b"{}"))
    assert [row is None for row in found.to_pylist()] == [False, True, True, False, True, False]
    assert list(bad) == [1, 4]
    assert said in bad[1], bad[1]


def test_numbers_and_times_up_to_the_last_possible_are_good() -> None:
    [found] = as_json(NUMBERS, {"small": 3.4028235e38})
    assert found["small"] == pytest.approx(3.4028235e38)
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, datetime.UTC)
    first = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    assert [
        row["at"] for row in as_json(TIMES, *({"at": t.isoformat()} for t in (first, last)))
    ] == [
        first,
        last,
    ]


@pytest.mark.parametrize("odd", [None, b"{"])
def test_a_null_or_bad_value_does_not_make_columns_row_by_row(
    odd: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    whole = json_values._column

    def counted(values: list[Any], kind: pa.DataType) -> pa.Array:
        built.append(len(values))
        return whole(values, kind)

    monkeypatch.setattr(json_values, "_column", counted)
    json_reader(CLICK)(raw(*[b'{"item":1}'] * 1000, odd))
    columns = 1 + len(CLICK)
    assert len(built) <= 3 * columns


def test_running_out_of_memory_makes_no_record_bad() -> None:
    def read(_: bytes) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        one_by_one([b"{}"], read, lambda values: pa.array(values, pa.null()))


def test_a_column_that_may_not_be_null_must_be_there() -> None:
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    found, bad = json_reader(kind)(raw(b'{"id":1}', b"{}", b'{"id":null}'))
    assert list(bad) == [1, 2]
    assert found[0].as_py() == {"id": 1}


def test_every_kind_of_column_is_read_from_json() -> None:
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, datetime.UTC)
    kinds: list[tuple[pa.DataType, Any, Any]] = [
        (pa.bool_(), True, True),
        (pa.int8(), -128, -128),
        (pa.int16(), 32767, 32767),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.float32(), 0.5, 0.5),
        (pa.binary(), "aGk=", b"hi"),
        (pa.date32(), "2024-05-06", datetime.date(2024, 5, 6)),
        (pa.timestamp("us", tz="UTC"), "2024-05-06T09:08:09.123456+02:00", when),
        (pa.timestamp("us"), "2024-05-06T07:08:09.123456", when.replace(tzinfo=None)),
        (pa.decimal128(10, 2), "1.25", decimal.Decimal("1.25")),
        (pa.list_(pa.int32()), [1, None, 3], [1, None, 3]),
        (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        (pa.struct([("x", pa.struct([("y", pa.int32())]))]), {"x": {"y": 1}}, {"x": {"y": 1}}),
        (
            pa.list_(pa.struct([("n", pa.string())])),
            [{"n": "a"}, None, {}],
            [{"n": "a"}, None, {"n": None}],
        ),
        (pa.map_(pa.string(), pa.struct([("n", pa.int32())])), {"k": {"n": 1}}, [("k", {"n": 1})]),
    ]
    for kind, given_value, wanted in kinds:
        column = pa.struct([("c", kind)])
        assert as_json(column, {"c": given_value}, {"c": None}, {}) == [
            {"c": wanted},
            {"c": None},
            {"c": None},
        ], kind


def test_a_number_too_long_for_its_decimal_is_bad() -> None:
    kind = pa.struct([("d", pa.decimal128(4, 2))])
    found, bad = json_reader(kind)(raw(b'{"d":"12.34"}', b'{"d":"12345.6"}'))
    assert list(bad) == [1]
    assert found[0].as_py() == {"d": decimal.Decimal("12.34")}


def test_names_of_columns_need_not_be_names_in_python() -> None:
    kind = pa.struct([("a b", pa.int32()), ("class", pa.int32()), ("ü", pa.int32())])
    assert as_json(kind, {"a b": 1, "class": 2, "ü": 3}) == [{"a b": 1, "class": 2, "ü": 3}]


def test_a_type_that_json_has_not_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="cannot be read from JSON"):
        json_reader(pa.struct([("c", pa.duration("us"))]))


@given(st.lists(st.none() | st.binary(max_size=20), max_size=30))
def test_every_row_is_good_or_bad_or_null(values: list[bytes | None]) -> None:
    kind = pa.struct([("a", pa.int32())])
    found, bad = json_reader(kind)(raw(*values))
    assert len(found) == len(values)
    for row, value in enumerate(values):
        if value is None:
            assert row not in bad
        assert found[row].is_valid == (value is not None and row not in bad)


def test_text_that_is_no_text_is_bad() -> None:
    read = value_reader(Values("string"), pa.string())
    assert read(raw(b"a", None))[0].to_pylist() == ["a", None]
    found, bad = read(raw("ü".encode(), b"\xff", None))
    assert found.to_pylist() == ["ü", None, None]
    assert list(bad) == [1]


def test_raw_values_are_left_alone() -> None:
    values = raw(b"\xff", None)
    assert value_reader(Values(), pa.binary())(values) == (values, {})


AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "item", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "last", "type": ["null", "Kind"]},
        {"name": "place", "type": {"type": "map", "values": "double"}},
    ],
}
CLICK_TYPE = pa.struct(
    [
        ("user", pa.string()),
        ("item", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.string()),
        ("last", pa.string()),
        ("place", pa.map_(pa.string(), pa.float64())),
    ]
)


def encoded(record: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def of_one_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "a", "type": kind}]}


def test_avro_becomes_columns() -> None:
    when = datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC)
    record = {
        "user": "a",
        "item": None,
        "at": when,
        "tags": ["x"],
        "kind": "A",
        "last": "B",
        "place": {"lat": 1.5},
    }
    values = Values("avro", json.dumps(AVRO))
    assert value_type_ddl(values) == (
        "struct<`user`:string,`item`:int,`at`:timestamp,`tags`:array<string>,`kind`:string,"
        "`last`:string,`place`:map<string,double>>"
    )
    good = encoded(record)
    found, bad = value_reader(values, CLICK_TYPE)(raw(good, None, good[:-3], good + b"!"))
    assert found[0].as_py() == {**record, "place": [("lat", 1.5)]}
    assert found.to_pylist()[1:] == [None, None, None]
    assert list(bad) == [2, 3]
    assert "1 bytes are left" in bad[3]


ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("kind", "written", "ddl", "column", "wanted"),
    [
        ({"type": "string", "logicalType": "uuid"}, ID, "string", pa.string(), str(ID)),
        (
            ["null", {"type": "int", "logicalType": "time-millis"}],
            datetime.time(0, 0, 1, 2000),
            "int",
            pa.int32(),
            1002,
        ),
        (
            {"type": "long", "logicalType": "time-micros"},
            datetime.time(0, 0, 1, 2),
            "bigint",
            pa.int64(),
            1_000_002,
        ),
    ],
)
def test_avro_types_that_spark_has_not_are_what_they_are_written_as(
    kind: Any, written: Any, ddl: str, column: pa.DataType, wanted: Any
) -> None:
    schema = of_one_field(kind)
    values = Values("avro", json.dumps(schema))
    assert value_type_ddl(values) == f"struct<`a`:{ddl}>"
    read = value_reader(values, pa.struct([("a", column)]))
    found, bad = read(raw(encoded({"a": written}, schema)))
    assert (found.to_pylist(), bad) == ([{"a": wanted}], {})


def test_an_avro_decimal_too_long_for_its_column_takes_no_other_with_it() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = of_one_field(kind)
    good = encoded({"a": decimal.Decimal("1.25")}, schema)
    long = encoded({"a": (10**8).to_bytes(5, "big")}, of_one_field("bytes"))
    column = pa.struct([("a", pa.decimal128(4, 2))])
    found, bad = value_reader(Values("avro", json.dumps(schema)), column)(raw(good, long, good))
    assert [row and row["a"] for row in found.to_pylist()] == [
        decimal.Decimal("1.25"),
        None,
        decimal.Decimal("1.25"),
    ]
    assert list(bad) == [1]
    assert "precision" in bad[1]


def test_an_avro_schema_that_is_none_is_refused() -> None:
    for text, said in (
        ("{", "no Avro schema"),
        ('{"type":"record"}', "no Avro schema"),
        ('"string"', "must be a record"),
    ):
        with pytest.raises(InvalidConfig, match=said):
            value_type_ddl(Values("avro", text))
    union = {**AVRO, "fields": [{"name": "u", "type": ["int", "string"]}]}
    with pytest.raises(InvalidConfig, match="union"):
        avro_to_ddl(avro_schema(json.dumps(union)))


def test_avro_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'headrace\[avro\]'"):
        avro_schema(json.dumps(AVRO))
