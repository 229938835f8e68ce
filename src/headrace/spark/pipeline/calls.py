"""Calls of Spark's Python API as values: what `plan` prints is what `run` does.

A pipeline is compiled to these once. `written` turns them into Python, `done` carries them out;
neither knows what the calls mean, so the two cannot part.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_WIDTH: Final = 92


@dataclass(frozen=True, slots=True)
class Name:
    """A variable of the program."""

    text: str


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that is given but never printed."""

    text: str


@dataclass(frozen=True, slots=True)
class Get:
    """An attribute: `spark.readStream`."""

    of: "Expression"
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A method, or a function where `on` is None."""

    on: "Expression | None"
    name: str
    arguments: "tuple[Argument, ...]" = ()
    named: "tuple[tuple[str, Argument], ...]" = ()


Expression = Name | Get | Call
Options = tuple[tuple[str, "str | Secret"], ...]
Argument = Expression | Secret | str | int | bool | None | tuple[str, ...] | Options
# What Spark itself does not show, and names of object stores and brokers that it does not know.
_SECRET: Final = re.compile(
    r"password|passphrase|secret|token|credential|jaas|(access|account|api|private).?key"
    r"|keystore\.key|(^|\.)sas(\.|$)",
    re.IGNORECASE,
)


def call(on: Expression, name: str, *arguments: Argument, **named: Argument) -> Call:
    """A method with its arguments."""
    return Call(on, name, arguments, tuple(named.items()))


def function(name: str, *arguments: Argument) -> Call:
    """A function of the program's namespace."""
    return Call(None, name, arguments)


def options(given: Mapping[str, str]) -> Options:
    """Options as an argument, those that are secret by their name as such."""
    return tuple(
        (name, Secret(value) if _SECRET.search(name) else value) for name, value in given.items()
    )


def with_options(chain: Call, given: Mapping[str, str]) -> Call:
    """`.option(name, value)` for each."""
    for name, value in options(given):
        chain = call(chain, "option", name, value)
    return chain


def evaluate(expression: Argument, names: Mapping[str, Any]) -> Any:
    """Carry out; `names` holds the variables and functions."""
    match expression:
        case Name(text):
            return names[text]
        case Get(of, name):
            return getattr(evaluate(of, names), name)
        case Secret(text):
            return text
        case Call(on, name, arguments, named):
            target = names[name] if on is None else getattr(evaluate(on, names), name)
            given = {key: evaluate(value, names) for key, value in named}
            return target(*(evaluate(each, names) for each in arguments), **given)
        case tuple():
            values: tuple[Any, ...] = expression
            if _is_mapping(values):
                return {key: evaluate(value, names) for key, value in values}
            return list(values)
        case _:
            return expression


def source_of(expression: Argument) -> str:
    """The expression as Python, on one line."""
    match expression:
        case Name(text):
            return text
        case Get(of, name):
            return f"{source_of(of)}.{name}"
        case Call(on, _, _, _):
            return ("" if on is None else f"{source_of(on)}.") + _link(expression)
        case Secret():
            return '"*****"'
        case tuple():
            return _collection(expression)
        case str():
            return _text(expression)
        case _:
            return repr(expression)


def assignment_of(name: str, expression: Expression) -> str:
    """`name = ...` as Python, a line for each call where one line is too short."""
    one = f"{name} = {source_of(expression)}"
    if len(one) <= _WIDTH and one.count(".") < 3:
        return one
    links = _chain(expression)
    return f"{name} = (\n" + "".join(f"    {each}\n" for each in links) + ")"


def _chain(expression: Expression) -> list[str]:
    """The first thing and what is called on it, in order; attributes stay with what is before."""
    match expression:
        case Call(on, _, _, _) if on is not None:
            before = _chain(on)
            link = "." + _link(expression)
            if isinstance(on, Name | Get):
                return [*before[:-1], before[-1] + link]
            return [*before, link]
        case Get(of, name):
            before = _chain(of)
            if isinstance(of, Name):
                return [*before[:-1], f"{before[-1]}.{name}"]
            return [*before, f".{name}"]
        case _:
            return [source_of(expression)]


def _text(text: str) -> str:
    """In lines as it was written, where nothing in it needs escaping."""
    if "\n" in text and '"' not in text and "\\" not in text:
        return f'"""{text}"""'
    return json.dumps(text, ensure_ascii=False)


def _link(expression: Call) -> str:
    given = [source_of(each) for each in expression.arguments]
    given += [f"{key}={source_of(value)}" for key, value in expression.named]
    return f"{expression.name}({', '.join(given)})"


def _collection(values: tuple[Any, ...]) -> str:
    if _is_mapping(values):
        return "{" + ", ".join(f"{source_of(key)}: {source_of(each)}" for key, each in values) + "}"
    return "[" + ", ".join(source_of(each) for each in values) + "]"


def _is_mapping(values: tuple[Any, ...]) -> bool:
    return bool(values) and all(isinstance(each, tuple) for each in values)
