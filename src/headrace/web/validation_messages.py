"""What a field may hold, in words, for whoever is told that it holds something else.

The validator names the place (`$.records[0].partition`) and one bound that was broken; the type
that a route declares knows the rest.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import inspect

_FIELD_PATH: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")
_ITEM: Final = re.compile(r"^\[[^\]]*\]")
_TYPE_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.NoneType: "null",
    inspect.BoolType: "true or false",
    inspect.FloatType: "a number",
    inspect.DictType: "an object",
}


def validation_message(kind: Any, error: msgspec.ValidationError) -> str:
    """The validator's message with what would have been right."""
    message = str(error)
    found = _FIELD_PATH.search(message)
    meant = _type_at(inspect.type_info(kind), found[1] if found else "")
    allowed = None if meant is None else _describe(meant)
    return message if allowed is None else f"{message}; allowed: {allowed}"


def _type_at(kind: inspect.Type, path: str) -> inspect.Type | None:
    """The type of what lies at a place; None where that cannot be told."""
    if isinstance(kind, inspect.Metadata):
        return _type_at(kind.type, path)
    if not path:
        return kind
    if isinstance(kind, inspect.UnionType):
        inside = (_type_at(each, path) for each in kind.types)
        return next((each for each in inside if each is not None), None)
    if isinstance(kind, inspect.StructType):
        # Names may have dots in them, as those of Kafka's configs do.
        named = [field for field in kind.fields if path.startswith(f".{field.encode_name}")]
        if not named:
            return None
        field = max(named, key=lambda each: len(each.encode_name))
        return _type_at(field.type, path[len(field.encode_name) + 1 :])
    item = _ITEM.match(path)
    if item is not None and isinstance(kind, inspect.ListType):
        return _type_at(kind.item_type, path[item.end() :])
    if item is not None and isinstance(kind, inspect.DictType):
        return _type_at(kind.value_type, path[item.end() :])
    return None


def _describe(kind: inspect.Type) -> str | None:
    match kind:
        case inspect.Metadata():
            return _describe(kind.type)
        case inspect.UnionType():
            described = [words for each in kind.types if (words := _describe(each)) is not None]
            return ", or ".join(dict.fromkeys(described)) or None
        case inspect.LiteralType(values=("false", "true")):
            return _TYPE_WORDS[inspect.BoolType]
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
            return _TYPE_WORDS.get(type(kind))


def _bounds(lowest: int | None, highest: int | None, unit: str) -> str:
    if lowest is not None and highest is not None:
        return f" of {lowest} to {highest}{unit}" if unit else f" from {lowest} to {highest}"
    if lowest is not None:
        return f" of at least {lowest}{unit}"
    return "" if highest is None else f" of at most {highest}{unit}"
