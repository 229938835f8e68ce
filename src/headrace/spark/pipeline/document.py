"""A YAML file as a tree that remembers where everything stands, with variables put in.

Built from YAML's own nodes rather than from the values they stand for: each text, list and
mapping keeps its line and column, keys such as `on` stay words, and a key that is there twice is
noticed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from headrace.core.errors import ErrorCode, HeadraceError

_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|(\$\{)")
_NULL: Final = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """Where something stands, counted from 1 as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, and where."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class PipelineInvalid(HeadraceError):
    """A pipeline that cannot run as it is written; `problems` has all that was found."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(each) for each in problems))


class Findings:
    """Collects problems, so that one run tells all of them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[Problem, None] = {}

    def add(self, location: Location, message: str) -> None:
        """Note a problem; the same one twice counts once."""
        self._found[Problem(self.file, location.line, location.column, message)] = None

    @property
    def problems(self) -> list[Problem]:
        """All of them, from top to bottom."""
        return sorted(self._found, key=lambda each: (each.line, each.column))

    def refuse(self) -> None:
        """Raise if anything is wrong."""
        if self._found:
            raise PipelineInvalid(self.problems)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number or word; `text` is None for a null.

    `first_line` is where a text of several lines (`|`) starts, each of its lines being one of the
    file. `is_told` if a variable in it is missing: nothing more need be said about it.
    """

    location: Location
    text: str | None
    first_line: int | None = None
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A list."""

    location: Location
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping with what it holds."""

    location: Location
    value: "Node"


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping."""

    location: Location
    entries: dict[str, Entry]


Node = Scalar | Listing | Table
START: Final = Location(1, 1)


def parse(text: str, variables: Mapping[str, str], findings: Findings) -> Table:
    """The document; raises at once if it is none, since nothing else could be said about it."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        location = _location_of_error(error)
        findings.add(location, f"this is not YAML: {_what(error)}{_hint(text, location)}")
        raise PipelineInvalid(findings.problems) from error
    if root is None:
        findings.add(START, "the file is empty")
        raise PipelineInvalid(findings.problems)
    document = _Converter(variables, findings).convert(root)
    if not isinstance(document, Table):
        findings.add(document.location, "a pipeline is a mapping with name, source and sinks")
        raise PipelineInvalid(findings.problems)
    return document


def _location(mark: yaml.Mark) -> Location:
    return Location(mark.line + 1, mark.column + 1)


def _location_of_error(error: yaml.YAMLError) -> Location:
    """Where it shows; what is never closed shows at the end, and is told where it opens."""
    marks = [getattr(error, name, None) for name in ("problem_mark", "context_mark")]
    if re.search("end of stream|stream end", _what(error)):
        marks.reverse()
    return next((_location(mark) for mark in marks if mark is not None), START)


def _hint(text: str, location: Location) -> str:
    lines = text.splitlines()
    if location.line <= len(lines) and "${" in lines[location.line - 1]:
        return "; within {...} and [...] a value with ${NAME} must be quoted"
    return ""


def _what(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        return ", ".join(each for each in (error.context, error.problem) if each)
    return str(error).splitlines()[0]


class _Converter:
    """YAML's nodes to ours; an anchor that is used in many places is converted once."""

    def __init__(self, variables: Mapping[str, str], findings: Findings) -> None:
        self._variables = variables
        self._findings = findings
        self._done: dict[int, Node] = {}
        self._open: set[int] = set()

    def convert(self, node: yaml.Node) -> Node:
        location = _location(node.start_mark)
        if id(node) in self._open:
            self._findings.add(location, "an anchor holds itself")
            return Scalar(location, None)
        if id(node) not in self._done:
            self._open.add(id(node))
            self._done[id(node)] = self._converted(node, location)
            self._open.remove(id(node))
        return self._done[id(node)]

    def _converted(self, node: yaml.Node, location: Location) -> Node:
        if isinstance(node, yaml.MappingNode):
            return self._table(node, location)
        if isinstance(node, yaml.SequenceNode):
            return Listing(location, tuple(self.convert(each) for each in node.value))
        assert isinstance(node, yaml.ScalarNode)
        if node.tag == _NULL:
            return Scalar(location, None)
        first_line = location.line + 1 if node.style == "|" else None
        known = len(self._findings.problems)
        text = self._filled(str(node.value), location)
        return Scalar(location, text, first_line, is_told=len(self._findings.problems) > known)

    def _table(self, node: yaml.MappingNode, location: Location) -> Table:
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            at = _location(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self._findings.add(at, "a key must be a plain word")
                continue
            if key.value in entries:
                first = entries[key.value].location.line
                self._findings.add(at, f"{key.value!r} is there twice, first in line {first}")
                continue
            entries[key.value] = Entry(at, self.convert(value))
        return Table(location, entries)

    def _filled(self, text: str, location: Location) -> str:
        def fill(match: re.Match[str]) -> str:
            escaped, name, default, broken = match.groups()
            if escaped:
                return "${"
            if broken:
                self._findings.add(
                    location, f"{text!r}: variables are ${{NAME}} or ${{NAME:-default}}"
                )
                return ""
            found: str | None = self._variables.get(name)
            if not found and default is not None:
                found = default
            if found is None:
                self._findings.add(
                    location, f"the variable {name} is not set; ${{{name}:-...}} gives it a default"
                )
                return ""
            return found

        return _VARIABLE.sub(fill, text)
