"""Two transcripts side by side: which fields of which answers differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.differential.masks import Plain
from tests.differential.peer import Step

_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that Apache Kafka and Headrace answered differently."""

    script: str
    label: str
    api: str
    version: int
    path: str
    kafka: Plain
    headrace: Plain

    def __str__(self) -> str:
        where = f"{self.api} v{self.version} [{self.script}: {self.label}] {self.path}"
        return f"{where}: Kafka {self.kafka!r}, Headrace {self.headrace!r}"


def differences(kafka: Sequence[Step], headrace: Sequence[Step]) -> list[Difference]:
    """Every difference between two runs of the same scripts."""
    found: list[Difference] = []
    for ours, theirs in zip(headrace, kafka, strict=True):
        assert (ours.script, ours.label, ours.version) == (
            theirs.script,
            theirs.label,
            theirs.version,
        )
        found.extend(
            Difference(ours.script, ours.label, ours.api, ours.version, path, expected, got)
            for path, expected, got in _walk("", theirs.answer, ours.answer)
        )
    return found


def _walk(path: str, kafka: Plain, headrace: Plain) -> Iterator[tuple[str, Plain, Plain]]:
    if isinstance(kafka, dict) and isinstance(headrace, dict):
        for key in sorted(kafka.keys() | headrace.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _walk(inner, kafka.get(key, _ABSENT), headrace.get(key, _ABSENT))
    elif isinstance(kafka, list) and isinstance(headrace, list) and len(kafka) == len(headrace):
        for number, (theirs, ours) in enumerate(zip(kafka, headrace, strict=True)):
            yield from _walk(f"{path}[{number}]", theirs, ours)
    elif kafka != headrace:
        yield path, kafka, headrace
