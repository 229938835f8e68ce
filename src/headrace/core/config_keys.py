"""What a configuration key is: its type, default, limits and place in the order of sources.

A configuration class declares its keys as fields, `retention_ms: int = key(...)`; Kafka's
name for a key is the field's name with dots, so each key is written down once. `keys_of`
reads the declarations back, for parsing, for DescribeConfigs and for the reference in docs/.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from headrace.core.errors import InvalidConfig

T = TypeVar("T")

logger = logging.getLogger(__name__)

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigType(IntEnum):
    """Types as DescribeConfigs (v3 and later) numbers them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value came from, as DescribeConfigs (v1 and later) numbers it."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class Update(Enum):
    """How far a broker key may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(Protocol):
    """Says in Kafka's words what is wrong with a value, or nothing; `str()` documents it."""

    def problem(self, value: Any) -> str | None: ...


class Range(NamedTuple):
    low: float | None = None
    high: float | None = None

    def problem(self, value: Any) -> str | None:
        if self.low is not None and value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        parts = ["..." if bound is None else str(bound) for bound in self]
        return f"[{parts[0]},{parts[1]}]" if self.high is None else f"[{parts[0]},...,{parts[1]}]"


class NotZero(NamedTuple):
    """A limit, or a negative number for none; 0 would be a limit that nobody can keep."""

    def problem(self, value: Any) -> str | None:
        return None if value else "Value must not be 0; negative: never"

    def __str__(self) -> str:
        return "[1,...] or negative"


class OneOf(NamedTuple):
    """One of the words, or (for a list) only these words."""

    words: tuple[str, ...]

    def problem(self, value: Any) -> str | None:
        given = (value,) if isinstance(value, str) else value
        if all(word in self.words for word in given):
            return None
        return f"String must be one of: {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class LevelOrDefault(NamedTuple):
    """A compression level, or -1 for the codec's own default."""

    low: int
    high: int

    def problem(self, value: Any) -> str | None:
        if value == -1 or self.low <= value <= self.high:
            return None
        return f"Value must be between {self.low} and {self.high} or equal to -1"

    def __str__(self) -> str:
        return f"[{self.low},...,{self.high}] or -1"


class Synonym(NamedTuple):
    """A broker key that stands in for a topic key, and the factor between their units."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: Any
    doc: str
    valid: Validator | None = None
    synonyms: tuple[Synonym, ...] = ()
    update: Update = Update.READ_ONLY
    crash: str = ""
    """For a durability option: what a crash may lose."""
    internal: bool = False
    """Accepted, but not part of what users are offered; shown only where it is set."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Any:
        """The typed value, checked; `InvalidConfig` in Kafka's words otherwise."""
        value = parse_value(self.name, self.type, text)
        if self.valid is not None and (problem := self.valid.problem(value)) is not None:
            raise invalid_value(self.name, text.strip(), problem)
        return value

    def check(self, value: Any) -> None:
        """The limits of `parse` for a value that is already typed."""
        if self.valid is not None and value is not None:
            problem = self.valid.problem(value)
            if problem is not None:
                raise invalid_value(self.name, str(format_value(value)), problem)


def key(
    type_: ConfigType,
    default: T,
    valid: Validator | None = None,
    *,
    doc: str,
    synonyms: Sequence[Synonym | str] = (),
    update: Update = Update.READ_ONLY,
    crash: str = "",
    internal: bool = False,
) -> T:
    """Declare a configuration key as a dataclass field."""
    named = tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms)
    declared = ConfigKey("", type_, default, doc, valid, named, update, crash, internal)
    return field(default=default, metadata={"key": declared})


def keys_of(config: type) -> dict[str, ConfigKey]:
    """The declared keys of a configuration class by Kafka's name, in order of declaration."""
    keys = {}
    for declared in fields(config):
        if "key" in declared.metadata:
            name = declared.name.replace("_", ".")
            bare: ConfigKey = declared.metadata["key"]
            keys[name] = replace(bare, name=name)
    return keys


_INTEGER = re.compile(r"[+-]?[0-9]+")
_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


def invalid_value(name: str, text: str, problem: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {text} for configuration {name}: {problem}")


def parse_value(name: str, type_: ConfigType, text: str) -> Any:
    """Text to bool, int, float, str or tuple of str, by Kafka's rules."""
    text = text.strip()
    match type_:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise invalid_value(name, text, "Expected value to be either true or false")
            return text.lower() == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            limit = 1 << _BITS[type_]
            if _INTEGER.fullmatch(text) is None or not -limit <= int(text) < limit:
                raise invalid_value(name, text, f"Not a number of type {type_.name}")
            return int(text)
        case ConfigType.DOUBLE:
            try:
                number = float(text)
            except ValueError:
                raise invalid_value(name, text, "Not a number of type DOUBLE") from None
            if number != number:  # NaN passes every range check, so it must not get that far.
                raise invalid_value(name, text, "Not a number of type DOUBLE")
            return number
        case ConfigType.LIST:
            words = tuple(word.strip() for word in text.split(",")) if text else ()
            if "" in words:
                raise InvalidConfig(f"Configuration '{name}' values must not be empty.")
            return words
        case _:
            return text


def drop_invalid(stored: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> Mapping[str, str]:
    """What of stored configs this version takes; the rest has no effect, and is said to have none.

    They were checked when they were set, perhaps by another version with other keys and limits:
    that must not keep a broker from starting, with everything else it holds.
    """
    refused: dict[str, str] = {}
    for name, text in stored.items():
        known = keys.get(name)
        try:
            if known is None:
                refused[name] = "the key is not known"
            else:
                known.parse(text)
        except InvalidConfig as error:
            refused[name] = error.message
    for name, reason in refused.items():
        logger.warning("a stored config has no effect: name=%s reason=%s", name, reason)
    if not refused:
        return stored
    return {name: text for name, text in stored.items() if name not in refused}


def unless_negative(value: int) -> int | None:
    """Kafka writes "never" and "no limit" as a negative number; to us they are None."""
    return None if value < 0 else value


def format_value(value: Any) -> str | None:
    """A typed value as DescribeConfigs shows it; null stays null."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


class ConfigSynonym(NamedTuple):
    """One of the places a value can come from, in the order in which they win."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key of one resource as DescribeConfigs answers it."""

    key: ConfigKey
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def suggestion(name: str, known: Mapping[str, object]) -> str:
    """A hint for a mistyped key, or nothing when nothing is close."""
    from difflib import get_close_matches  # only on the way to an error message

    close = get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {close[0]}?" if close else ""
