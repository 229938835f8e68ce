"""Content types, and what they say about the keys and values inside.

    application/json                        keys are text, values are JSON
    application/vnd.kafka.json.v2+json      keys and values are JSON
    application/vnd.kafka.binary.v2+json    keys and values are base64
    application/vnd.kafka.v2+json           as binary, which is REST Proxy's default
    application/x-ndjson                    as application/json, one record on each line

Formats that need a schema registry (avro, protobuf, jsonschema) are refused by name, except where
a body has no records: there every type of REST Proxy v2 means the same, so that its clients can
send one header with all their calls. The names without `.v2`, of older clients, are taken as well.
"""

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from headrace.web.errors import HttpError

Format = Literal["json", "text", "binary"]

JSON: Final = "application/json"
KAFKA_JSON: Final = "application/vnd.kafka.json.v2+json"
KAFKA_BINARY: Final = "application/vnd.kafka.binary.v2+json"
KAFKA: Final = "application/vnd.kafka.v2+json"
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html; charset=utf-8"

_NEED_SCHEMAS: Final = ("avro", "protobuf", "jsonschema")
METADATA: Final = (JSON, KAFKA)
"""For bodies without records."""
PROXY: Final = (
    KAFKA,
    JSON,
    KAFKA_JSON,
    KAFKA_BINARY,
    *(f"application/vnd.kafka.{name}.v2+json" for name in _NEED_SCHEMAS),
)
"""For bodies without records, on the paths of REST Proxy v2."""
RECORDS: Final = (JSON, KAFKA_JSON, KAFKA_BINARY, KAFKA)
"""For bodies with records."""


class Formats(NamedTuple):
    """How keys and values are written unless a record says otherwise."""

    key: Format
    value: Format


FORMATS: Final[dict[str, Formats]] = {
    JSON: Formats("text", "json"),
    NDJSON: Formats("text", "json"),
    EVENTS: Formats("text", "json"),
    KAFKA_JSON: Formats("json", "json"),
    KAFKA_BINARY: Formats("binary", "binary"),
    KAFKA: Formats("binary", "binary"),
}
# As clients of earlier versions name the same: application/vnd.kafka.json.v1+json, without v1, …
_OLDER_NAME: Final = re.compile(r"application/vnd\.kafka((?:\.(?:json|binary))?)(?:\.v1)?\+json")
_EMBEDDED: Final = re.compile(r"application/vnd\.kafka\.(\w+)\.v2\+json")


@lru_cache(256)
def content_type(header: bytes | None, accepted: tuple[str, ...]) -> str:
    """The type of a request's body, one of `accepted`."""
    offered = "" if header is None else header.decode("latin-1").partition(";")[0].strip().lower()
    offered = _current_name(offered)
    if offered in accepted:
        return offered
    if any(f"vnd.kafka.{name}." in offered for name in _NEED_SCHEMAS):
        raise HttpError(
            41501,
            f"{offered} needs a schema registry, which this broker has not",
            hint=f"send {KAFKA_JSON} or {KAFKA_BINARY}",
        )
    said = f"the content type {offered} is not taken here" if offered else "no content type"
    raise HttpError(415, said, hint=f"send one of: {', '.join(accepted)}")


@lru_cache(256)
def response_type(accept: bytes | None, offered: tuple[str, ...]) -> str:
    """The type to answer with, by the client's preference and then by ours."""
    if accept is None:
        return offered[0]
    wanted = _wanted(accept.decode("latin-1"))
    best, best_quality = "", 0.0
    for name in offered:
        bare = name.partition(";")[0]
        quality = max((q for pattern, q in wanted if _matches(pattern, bare)), default=0.0)
        if quality > best_quality:
            best, best_quality = name, quality
    if best:
        return best
    needs = [name for name in _NEED_SCHEMAS if any(name in pattern for pattern, _ in wanted)]
    why = "; formats with a schema need a registry, which this broker has not" if needs else ""
    raise HttpError(
        406,
        f"nothing here is of the type {accept.decode('latin-1')[:200]!r}{why}",
        hint=f"ask for one of: {', '.join(offered)}",
    )


def names_a_format(accept: bytes) -> bool:
    """Whether a client asks for records in some embedded format by its name."""
    return any(_EMBEDDED.fullmatch(name) for name, _ in _wanted(accept.decode("latin-1")))


def _current_name(name: str) -> str:
    older = _OLDER_NAME.fullmatch(name)
    return name if older is None else f"application/vnd.kafka{older[1]}.v2+json"


def _wanted(accept: str) -> list[tuple[str, float]]:
    found = []
    for part in accept.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        # A pattern with a star is worth a little less, so that a type asked for by name wins.
        found.append((_current_name(name.lower()), quality - 0.0001 * name.count("*")))
    return found


def _matches(pattern: str, name: str) -> bool:
    if pattern in ("*/*", "*"):
        return True
    kind, _, rest = pattern.partition("/")
    return pattern == name or (rest == "*" and name.startswith(kind + "/"))
