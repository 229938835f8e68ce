"""Mappings read key by key against what they may hold; what is wrong goes to the findings.

A `Section` is the one place that says which keys there are: it decides what is accepted, words
what is allowed in messages, and is the table in the guide.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from headrace.spark.pipeline.document import Findings, Listing, Location, Node, Scalar, Table

T = TypeVar("T", bound=str)
_UNITS: Final = "millisecond|second|minute|hour|day|week"
_DURATION: Final = re.compile(rf"(\d+\s+({_UNITS})s?)(\s+\d+\s+({_UNITS})s?)*", re.IGNORECASE)
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a mapping may have: what it holds, what it is for, and what it is by default."""

    name: str
    holds: str
    meaning: str
    default: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of the file, under the names that messages and the guide use."""

    name: str
    title: str
    keys: tuple[Key, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


class Fields:
    """One mapping of the file, checked against its section."""

    def __init__(self, table: Table, section: Section, findings: Findings) -> None:
        self.table = table
        self.findings = findings
        self._section = section
        for name, entry in table.entries.items():
            if name not in section.names:
                findings.add(entry.location, unknown(name, section.names, section.name))
        for key in section.keys:
            if key.required and key.name not in table.entries:
                findings.add(table.location, f"{section.name} needs {key.name!r}: {key.meaning}")

    @property
    def location(self) -> Location:
        return self.table.location

    def has(self, name: str) -> bool:
        return name in self.table.entries

    def location_of(self, name: str) -> Location:
        """Where a key stands, or the mapping if it does not."""
        return self.table.entries[name].location if self.has(name) else self.table.location

    def node(self, name: str) -> Node | None:
        """What a key holds; None where it is missing or null."""
        assert name in self._section.names, f"{name} is not declared in {self._section.name}"
        entry = self.table.entries.get(name)
        if entry is None or (isinstance(entry.value, Scalar) and entry.value.text is None):
            return None
        return entry.value

    def wrong(self, name: str, message: str) -> None:
        self.findings.add(self.location_of(name), f"{name}: {message}")

    def text(self, name: str) -> str | None:
        """A text that is not empty."""
        node = self.node(name)
        if node is None:
            if self.has(name):
                self.wrong(name, f"is empty; {self._holds(name)}")
            return None
        return self._text(name, node)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; one text alone is a list of one."""
        node = self.node(name)
        if not isinstance(node, Listing):
            one = self.text(name)
            return () if one is None else (one,)
        if not node.items:
            self.wrong(name, f"is empty; {self._holds(name)}")
        found = [self._text(name, each) for each in node.items]
        return tuple(each for each in found if each is not None)

    def choice(self, name: str, allowed: tuple[T, ...], default: T) -> T:
        text = self.text(name)
        for each in allowed:
            if each == text:
                return each
        if text is not None:
            self.wrong(name, f"{text!r} is not one of {', '.join(allowed)}")
        return default

    def whole(self, name: str) -> int | None:
        """A whole number above 0."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9][0-9_]*", text) or int(text) < 1:
            self.wrong(name, f"{text!r} is not a whole number above 0")
            return None
        return int(text)

    def flag(self, name: str) -> bool:
        return self.choice(name, ("true", "false"), "false") == "true"

    def duration(self, name: str) -> str | None:
        """A time span in Spark's words."""
        text = self.text(name)
        if text is not None and not _DURATION.fullmatch(text.strip()):
            self.wrong(name, f"{text!r} is no time span such as 30 seconds, 5 minutes or 1 hour")
            return None
        return text

    def share(self, name: str) -> float | None:
        """A part of all, from 0 % to 100 %, as a number up to 1."""
        text = self.text(name)
        if text is None:
            return None
        found = _SHARE.fullmatch(text.strip())
        if found is None or float(found[1]) > 100:
            self.wrong(name, f"{text!r} is no share such as 5 % or 0.1 %")
            return None
        return float(found[1]) / 100

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """A mapping of names to texts, in its order."""
        node = self.node(name)
        if node is None:
            return ()
        if not isinstance(node, Table):
            self.findings.add(node.location, f"{name} must be a mapping; {self._holds(name)}")
            return ()
        found = []
        for key, entry in node.entries.items():
            value = self._text(f"{name}.{key}", entry.value)
            if value is not None:
                found.append((key, value))
        return tuple(found)

    def parts(self, name: str) -> tuple[tuple[str, Location], ...]:
        """The texts of a key, each with its place: of a mapping that of its key."""
        node = self.node(name)
        if isinstance(node, Table):
            found = [(each.value, each.location) for each in node.entries.values()]
        elif isinstance(node, Listing):
            found = [(each, each.location) for each in node.items]
        else:
            found = [] if node is None else [(node, self.location_of(name))]
        return tuple(
            (each.text, place) for each, place in found if isinstance(each, Scalar) and each.text
        )

    def section(self, name: str, section: Section) -> "Fields | None":
        """A mapping below this one."""
        node = self.node(name)
        if node is None:
            if self.has(name):
                self.wrong(name, f"is empty; {self._holds(name)}")
            return None
        if not isinstance(node, Table):
            self.findings.add(
                node.location, f"{name} must be a mapping with {', '.join(section.names)}"
            )
            return None
        return Fields(node, section, self.findings)

    def listing(self, name: str) -> tuple[Node, ...]:
        node = self.node(name)
        if node is None:
            return ()
        if not isinstance(node, Listing):
            self.findings.add(node.location, f"{name} must be a list; {self._holds(name)}")
            return ()
        return node.items

    def _text(self, name: str, node: Node) -> str | None:
        if not isinstance(node, Scalar):
            kind = "a list" if isinstance(node, Listing) else "a mapping"
            self.findings.add(node.location, f"{name} is {kind}, and must be text")
            return None
        if node.is_told:
            return None
        if node.text is None or not node.text.strip():
            self.findings.add(node.location, f"{name} is empty")
            return None
        return node.text

    def _holds(self, name: str) -> str:
        key = next(each for each in self._section.keys if each.name == name)
        return f"it holds {key.holds}"


def unknown(name: str, allowed: Iterable[str], where: str) -> str:
    """What to say about a word that is not known."""
    names = list(allowed)
    near = difflib.get_close_matches(name, names, 1, 0.6)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{where} has no {name!r}: {meant}allowed are {', '.join(names)}"


def only_one(
    fields: Fields, names: tuple[str, ...], why: str, *, needed: bool = True
) -> str | None:
    """Which of several keys is given; exactly one of them may be."""
    given = sorted((name for name in names if fields.has(name)), key=fields.location_of)
    if len(given) == 1:
        return given[0]
    if given:
        fields.findings.add(
            fields.location_of(given[1]), f"{' and '.join(given)} are both given: {why}"
        )
    elif needed:
        fields.findings.add(fields.location, f"one of {', '.join(names)} is needed: {why}")
    return given[0] if given else None
