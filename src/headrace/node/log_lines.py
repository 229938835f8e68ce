"""Log lines with fields: key=value for people, a JSON object for programs.

Everybody logs through the standard library, in one form:

    logger.info("compacted: partition=%s end_offset=%d", partition, end_offset)

The template is the structure: a sentence, then names, one for each argument. So the fields are
read off the template here, at the edge, and keep their types; wherever another handler is in
charge (a test, a program that embeds a broker) the same line reads well as it is.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TextIO

from headrace.core.ids import TopicPartition

_FIELD: Final = re.compile(r"([a-z][a-z0-9_]*)=(%(?:\.\d+)?[sdf])")
_PLAIN: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")

_COLOURS: Final = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


class LogTemplate(NamedTuple):
    """A template taken apart."""

    sentence: str
    fields: tuple[tuple[str, str], ...]
    """Name and format of each argument."""


@lru_cache(maxsize=512)
def parse_template(template: str) -> LogTemplate | None:
    """The parts of a template; None if it is not in the common form."""
    sentence, _, rest = template.partition(": ")
    fields = tuple(_FIELD.findall(rest))
    if " ".join(f"{name}={form}" for name, form in fields) != rest or "%" in sentence:
        return None
    return LogTemplate(sentence, fields)


def parts_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The sentence of a record and its fields, as values."""
    template, args = record.msg, record.args
    parsed = parse_template(template) if isinstance(template, str) else None
    if parsed is None or not isinstance(args, tuple) or len(args) != len(parsed.fields):
        return record.getMessage(), {}
    fields: dict[str, Any] = {}
    for (name, form), value in zip(parsed.fields, args, strict=True):
        if isinstance(value, TopicPartition):
            fields["topic"], fields["partition"] = value
        elif form != "%s":
            fields[name] = json.loads(form % value)
        elif value is None or isinstance(value, bool | int | float):
            fields[name] = value
        else:
            fields[name] = str(value)
    return parsed.sentence, fields


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO  headrace.node.log_cleaner: compacted topic=t partition=0`."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        sentence, fields = parts_of(record)
        words = [_UNPRINTABLE.sub(_escape, sentence)]
        words += [f"{name}={_quote(value)}" for name, value in fields.items()]
        level = f"{record.levelname:<7}"
        colour = _COLOURS.get(record.levelname) if self._colour else None
        if colour is not None:
            level = f"\x1b[{colour}m{level}\x1b[0m"
        line = f"{_timestamp(record.created)} {level} {record.name}: {' '.join(words)}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        sentence, fields = parts_of(record)
        line = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": sentence,
            **fields,
        }
        trace = _trace(self, record)
        if trace:
            line["exception"] = trace
        return json.dumps(line, ensure_ascii=False)


def configure(levels: Sequence[str], form: str, stream: TextIO | None = None) -> None:
    """Write what all loggers say to `stream` (stderr); replaces what was configured before."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(colour=colour))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for word in levels:
        name, _, level = word.rpartition("=")
        logging.getLogger(name or None).setLevel(level.upper())


def _timestamp(created: float) -> str:
    whole = int(created)
    return f"{_second(whole)}.{int((created - whole) * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _quote(value: object) -> str:
    """A value as one word; what a client chose must not pass for more than that."""
    if value is None:
        return "-"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
