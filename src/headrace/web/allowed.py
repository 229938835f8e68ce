"""What a field may hold, in words, for whoever is told that it holds something else.

The validator names the place (`$.records[0].partition`) and one bound that was broken; the type
that a route declares knows the rest.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

_PLACE: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")
_ITEM: Final = re.compile(r"^\[[^\]]*\]")
_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.NoneType: "null",
    inspect.BoolType: "true or false",
    inspect.FloatType: "a number",
    inspect.DictType: "an object",
}


def explained(kind: Any, error: msgspec.ValidationError) -> str:
    """The validator's message with what would have been right."""
    message = str(error)
    found = _PLACE.search(message)
    meant = _at(inspect.type_info(kind), found[1] if found else "")
    allowed = None if meant is None else _words(meant)
    return message if allowed is None else f"{message}; allowed: {allowed}"


def _at(kind: inspect.Type, place: str) -> inspect.Type | None:
    """The type of what lies at a place; None where that cannot be told."""
    if isinstance(kind, inspect.Metadata):
        return _at(kind.type, place)
    if not place:
        return kind
    if isinstance(kind, inspect.UnionType):
        inside = (_at(each, place) for each in kind.types)
        return next((each for each in inside if each is not None), None)
    if isinstance(kind, inspect.StructType):
        # Names may have dots in them, as those of Kafka's configs do.
        named = [field for field in kind.fields if place.startswith(f".{field.encode_name}")]
        if not named:
            return None
        field = max(named, key=lambda each: len(each.encode_name))
        return _at(field.type, place[len(field.encode_name) + 1 :])
    item = _ITEM.match(place)
    if item is not None and isinstance(kind, inspect.ListType):
        return _at(kind.item_type, place[item.end() :])
    if item is not None and isinstance(kind, inspect.DictType):
        return _at(kind.value_type, place[item.end() :])
    return None


def _words(kind: inspect.Type) -> str | None:
    match kind:
        case inspect.Metadata():
            return _words(kind.type)
        case inspect.UnionType():
            told = [words for each in kind.types if (words := _words(each)) is not None]
            return ", or ".join(dict.fromkeys(told)) or None
        case inspect.LiteralType(values=("false", "true")):
            return _WORDS[inspect.BoolType]
        case inspect.LiteralType():
            return "one of " + ", ".join(str(value) for value in kind.values)
        case inspect.IntType():
            return "an integer" + _bounds(kind.ge, kind.le, "")
        case inspect.StrType():
            return "text" + _bounds(kind.min_length, kind.max_length, " characters")
        case inspect.ListType():
            return "a list" + _bounds(kind.min_length, kind.max_length, " items")
        case inspect.StructType():
            names = ", ".join(
                field.encode_name if field.required else f"{field.encode_name} (optional)"
                for field in kind.fields
            )
            return f"an object with {names}" if names else "an empty object"
        case _:
            return _WORDS.get(type(kind))


def _bounds(lowest: int | None, highest: int | None, unit: str) -> str:
    if lowest is not None and highest is not None:
        return f" of {lowest} to {highest}{unit}" if unit else f" from {lowest} to {highest}"
    if lowest is not None:
        return f" of at least {lowest}{unit}"
    return "" if highest is None else f" of at most {highest}{unit}"
