"""Columns in a text, and what is wrong with them."""

from __future__ import annotations

import re

import pytest

from headrace.core.errors import InvalidConfig
from headrace.spark.ddl import require_columns
from headrace.spark.schema import source_ddl


@pytest.mark.parametrize(
    "text",
    [
        "user string, item int",
        "user: string, price DECIMAL(10, 2) NOT NULL COMMENT 'with, commas > and (more'",
        "`odd, name` int, `tick``s` map<string, array<struct<a: int, b: bigint not null>>>",
        "place struct<lat: double, lon: double>, none struct<>, tags array<string>",
        "name varchar(10), at timestamp_ntz, gap interval day to second",
        "low string collate UTF8_LCASE, all variant",
    ],
)
def test_columns_as_spark_takes_them_are_taken(text: str) -> None:
    require_columns(text, "valueSchema")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user strng, item int", "there is no type 'strng': did you mean string?"),
        ("a array<strin>", "there is no type 'strin': did you mean string?"),
        ("a map<string, qux>", "there is no type 'qux';"),
        ("a struct<b: nothing>", "there is no type 'nothing'"),
        ("user", "'user' has no type"),
        ("a int,", "a column is missing"),
        ("a int, , b int", "a column is missing"),
        ("a array", "array needs what it holds"),
        ("a array<int", "'>' is missing in array"),
        ("a map<int>", "',' is missing in map"),
        ("a struct<b int", "'>' is missing"),
        ("a int>", "'>' is too many"),
    ],
)
def test_what_is_wrong_is_named_in_the_text_that_was_given(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(f"valueSchema={text!r}: {said}")):
        source_ddl({"valueFormat": "json", "valueSchema": text})
