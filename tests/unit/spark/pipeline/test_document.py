"""YAML with places: variables, duplicates, anchors, and what is no YAML."""

from __future__ import annotations

import pytest

from headrace.spark.pipeline.document import (
    Findings,
    Listing,
    Location,
    PipelineInvalid,
    Scalar,
    Table,
    parse,
)


def parsed(text: str, **variables: str) -> tuple[Table, list[str]]:
    findings = Findings("a.yaml")
    try:
        table = parse(text, variables, findings)
    except PipelineInvalid:
        table = Table(Location(1, 1), {})
    return table, [str(each) for each in findings.problems]


def value(table: Table, key: str) -> str | None:
    node = table.entries[key].value
    assert isinstance(node, Scalar)
    return node.text


def test_keys_and_values_know_where_they_stand() -> None:
    table, said = parsed("a: 1\nb:\n  - x\n  - {c: d}\n")
    assert said == []
    items = table.entries["b"].value
    assert isinstance(items, Listing)
    assert items.items[0].location == Location(3, 5)
    inner = items.items[1]
    assert isinstance(inner, Table)
    assert inner.entries["c"].location == Location(4, 6)


def test_words_that_yaml_takes_for_truth_stay_words() -> None:
    table, _ = parsed("on: yes\nname: 12\nnothing: null\n")
    assert [value(table, key) for key in ("on", "name", "nothing")] == ["yes", "12", None]


@pytest.mark.parametrize(
    ("text", "variables", "found"),
    [
        ("${A}", {"A": "x"}, "x"),
        ("${A}-${B}", {"A": "x", "B": "y"}, "x-y"),
        ("${A:-z}", {}, "z"),
        ("${A:-z}", {"A": ""}, "z"),
        ("${A:-}", {}, ""),
        ("${A}", {"A": ""}, ""),
        ("$${A}", {}, "${A}"),
        ("cost: $5", {}, "cost: $5"),
    ],
)
def test_variables(text: str, variables: dict[str, str], found: str) -> None:
    table, said = parsed(f"a: '{text}'", **variables)
    assert (value(table, "a"), said) == (found, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "a.yaml:2:1: 'a' is there twice, first in line 1"),
        ("a: ${B}\n", "a.yaml:1:4: the variable B is not set; ${B:-...} gives it a default"),
        ("a: ${1}\n", "a.yaml:1:4: '${1}': variables are ${NAME} or ${NAME:-default}"),
        ("a: &x [*x]\n", "a.yaml:1:4: an anchor holds itself"),
        ("? [a]\n: b\n", "a.yaml:1:3: a key must be a plain word"),
        ("", "a.yaml:1:1: the file is empty"),
        ("- a\n", "a.yaml:1:1: a pipeline is a mapping with name, source and sinks"),
        ("a: b\n---\nc: d\n", "a.yaml:2:1: this is not YAML: expected a single document in the "),
        ("b: c\na: [1\n", "a.yaml:2:4: this is not YAML: while parsing a flow sequence, "),
        ('a: "b\nc: d\n', "a.yaml:1:4: this is not YAML: while scanning a quoted scalar, "),
        ("a:\n\t- b\n", "a.yaml:2:1: this is not YAML: while scanning for the next token, "),
        ("a: \x00\n", "a.yaml:1:1: this is not YAML: unacceptable character #x0000"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, said: str) -> None:
    [problem] = parsed(text)[1]
    assert problem.startswith(said)


def test_an_anchor_may_be_used_often() -> None:
    table, said = parsed("a: &x {b: 1}\nc: *x\nd: *x\n")
    assert said == []
    assert table.entries["c"].value == table.entries["d"].value == table.entries["a"].value


def test_a_text_of_several_lines_knows_its_first() -> None:
    table, _ = parsed("sql: |\n  SELECT 1\n  FROM x\nplain: a\n")
    node = table.entries["sql"].value
    assert isinstance(node, Scalar)
    assert (node.first_line, node.text) == (2, "SELECT 1\nFROM x\n")


def test_a_variable_that_wants_quotes_is_told_so() -> None:
    [problem] = parsed("a: {b: ${C}/d}\n")[1]
    assert problem.endswith("; within {...} and [...] a value with ${NAME} must be quoted")
