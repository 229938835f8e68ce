"""Records as lines of JSON: what `consume -f json` prints and `produce -f json` reads.

    {"key": "k", "value": "v", "headers": [["name", "value"]], "partition": 0, "timestamp": 17}

Bytes that are no UTF-8 are written as `{"base64": "…"}`. Headers are a list of pairs, because
a name may occur more than once; an object is read as well.
"""

import base64
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

FIELDS = ("value", "key", "headers", "partition", "timestamp")
PRINTED_ONLY = ("topic", "offset", "time")
"""Fields that `consume -f json` adds: passed over, so that one command can feed the other."""

TIMESTAMP_MAX_MS = 2**63 - 1
PARTITION_MAX = 2**31 - 1

Headers = list[tuple[str, bytes | None]]


class BadJsonLine(Exception):
    """A line that is no record, with the reason."""


class JsonRecord(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


def parse_record(line: bytes) -> JsonRecord:
    """The record that a line describes; `BadJsonLine` says what is wrong with it."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadJsonLine("not UTF-8") from error
    except json.JSONDecodeError as error:
        raise BadJsonLine(f"not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise BadJsonLine(f"not JSON: {error}") from error
    if not isinstance(record, dict):
        raise BadJsonLine("not a JSON object")
    for name in record:
        if name not in FIELDS and name not in PRINTED_ONLY:
            raise BadJsonLine(f"unknown field {name!r}; there are {', '.join(FIELDS)}")
    return JsonRecord(
        _data("value", record.get("value")),
        _data("key", record.get("key")),
        _headers(record.get("headers")),
        _integer("partition", record.get("partition"), PARTITION_MAX),
        _integer("timestamp", record.get("timestamp"), TIMESTAMP_MAX_MS, " of milliseconds"),
    )


def json_data(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON can hold them, without loss."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Headers as pairs, in order and with repeated names."""
    return [[str(name), json_data(value)] for name, value in headers]


def _data(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(name, value)
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise BadJsonLine(f"{name} is not valid base64: {error}") from error
    raise BadJsonLine(f'{name} must be a string, null or {{"base64": "…"}}, not {_shown(value)}')


def _headers(headers: Any) -> Headers:
    if headers is None:
        return []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list):
        raise BadJsonLine(f"headers must be an object or a list of pairs, not {_shown(headers)}")
    parsed: Headers = []
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise BadJsonLine(f"headers must hold [name, value] pairs, not {_shown(pair)}")
        _utf8("header name", pair[0])
        parsed.append((pair[0], _data(f"header {pair[0]!r}", pair[1])))
    return parsed


def _integer(name: str, value: Any, highest: int, unit: str = "") -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise BadJsonLine(f"{name} must be an integer{unit} from 0 up, not {_shown(value)}")
    return value


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, escaped as \ud800
        raise BadJsonLine(f"{name} is not Unicode text") from error


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "…"
