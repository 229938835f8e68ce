"""What `send` may be given: checked at the call, where the caller can still see what was wrong."""

from collections.abc import Sequence

from headrace.client.core.models import Headers
from headrace.core.files import Buffer

_BUFFERS = (bytes, bytearray, memoryview)
_TIMESTAMP_MS_MAX = 2**63 - 1


def check_record(
    topic: str,
    value: Buffer | None,
    key: Buffer | None,
    headers: Headers,
    partition: int | None,
    timestamp_ms: int | None,
) -> None:
    """Raise a TypeError or ValueError that names the argument which cannot be sent."""
    # Exact types first: this runs for every record, and nearly all are of these.
    if type(topic) is not str and not isinstance(topic, str):
        raise TypeError(f"topic must be a str, not {_type_name(topic)}")
    if value is not None and type(value) is not bytes:
        _check_bytes("value", value)
    if key is not None and type(key) is not bytes:
        _check_bytes("key", key)
    if headers:
        _check_headers(headers)
    if partition is not None and not isinstance(partition, int):
        raise TypeError(f"partition must be an int or None, not {_type_name(partition)}")
    if timestamp_ms is not None:
        _check_timestamp(timestamp_ms)


def _check_bytes(name: str, data: object) -> None:
    if not isinstance(data, _BUFFERS):
        advice = ": encode it first" if isinstance(data, str) else ""
        raise TypeError(f"{name} must be bytes or None, not {_type_name(data)}{advice}")
    if isinstance(data, memoryview) and data.nbytes != len(data):
        raise TypeError(f"{name} must be a memoryview of single bytes: cast('B') it first")


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Sequence):
        raise TypeError(f"headers must be a list of (str, bytes) pairs, not {_type_name(headers)}")
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise TypeError(f"headers must be (str, bytes) pairs, not {header!r}")
        name, data = header
        if not isinstance(name, str):
            raise TypeError(f"a name in headers must be a str, not {_type_name(name)}")
        if data is not None:
            _check_bytes(f"the value of {name!r} in headers", data)


def _check_timestamp(timestamp_ms: object) -> None:
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms must be an int or None, not {_type_name(timestamp_ms)}")
    if not -1 <= timestamp_ms <= _TIMESTAMP_MS_MAX:
        raise ValueError(f"timestamp_ms is in milliseconds since 1970, not {timestamp_ms}")


def _type_name(given: object) -> str:
    return type(given).__name__
