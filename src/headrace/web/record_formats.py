"""Records between JSON and bytes.

Keys and values are embedded in a format: `json` (the JSON text itself is stored), `text` (a
string, stored as UTF-8) or `binary` (base64). The content type gives the default; a record may
name another with `key_format` and `value_format`. In answers these are present where a key or
value could not be shown in the default format, so what is read can be sent back as it is.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from headrace.gateway import OutRecord
from headrace.protocol.records.decode import Record
from headrace.web.errors import HttpError
from headrace.web.media import Format, Formats

Timestamp = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Milliseconds since 1970.")]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Embedded = Annotated[msgspec.Raw, msgspec.Meta(description="Embedded in the record's format.")]
AnyJson = Annotated[Any, msgspec.Meta(description="Embedded in the record's format.")]

_encode: Final = msgspec.json.Encoder().encode
_decode_str: Final = msgspec.json.Decoder(str).decode
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode
_NULL: Final = b"null"


class RecordHeader(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One header of a record; `binary` is base64."""

    name: str
    value: str | None = None
    format: Format = "text"


class RecordIn(msgspec.Struct, forbid_unknown_fields=True):
    """One record to produce."""

    key: Embedded | msgspec.UnsetType = msgspec.UNSET
    value: Embedded | msgspec.UnsetType = msgspec.UNSET
    partition: PartitionNumber | None = None
    timestamp: Timestamp | None = None
    headers: list[RecordHeader] | None = None
    key_format: Format | None = None
    value_format: Format | None = None


class RecordOut(msgspec.Struct):
    """One record as it is read."""

    topic: str
    key: AnyJson
    value: AnyJson
    partition: int
    offset: int
    timestamp: int
    headers: list[RecordHeader] | msgspec.UnsetType = msgspec.UNSET
    key_format: Format | msgspec.UnsetType = msgspec.UNSET
    value_format: Format | msgspec.UnsetType = msgspec.UNSET


class BadRecord(HttpError):
    """A record whose key, value or header is not in its format."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(400, message, hint=hint)


def out_records(
    records: Iterable[RecordIn], formats: Formats, partition: int | None = None, *, first: int = 0
) -> list[OutRecord]:
    """Records for the gateway; all to one partition if it is given. Counted from `first`."""
    key_default, value_default = formats
    found = []
    for number, record in enumerate(records, first):
        try:
            value = _stored(record.value, record.value_format or value_default)
            key = _stored(record.key, record.key_format or key_default)
        except (ValueError, msgspec.DecodeError) as error:
            raise BadRecord(f"record {number}: {error}", _FORMAT_HINT) from None
        headers = () if not record.headers else _headers(number, record.headers)
        to = record.partition if partition is None else partition
        found.append(OutRecord(value, key, to, headers, record.timestamp))
    return found


_FORMAT_HINT: Final = "name another format with key_format or value_format: json, text or binary"


def _stored(raw: msgspec.Raw | msgspec.UnsetType, format: Format) -> bytes | None:
    if raw is msgspec.UNSET:
        return None
    data = bytes(raw)
    if data == _NULL:
        return None
    if format == "json":
        return data
    if data[0] != 34:  # not a string
        if format == "text":
            return data
        raise ValueError("a binary key or value is a string of base64")
    if format == "text":
        return _decode_str(data).encode()
    return _from_base64(_decode_str(data))


def _from_base64(text: str) -> bytes:
    """As encoders write it: in one line or in several, with or without padding."""
    text = text.replace("\r", "").replace("\n", "")
    try:
        filled = text.encode("ascii") + b"=" * (-len(text) % 4)
        return a2b_base64(filled, strict_mode=True) if text else b""
    except (Base64Error, UnicodeEncodeError):
        raise ValueError("this is not base64") from None


def _headers(number: int, headers: Sequence[RecordHeader]) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    for header in headers:
        if header.value is None:
            found.append((header.name, None))
        elif header.format == "binary":
            try:
                found.append((header.name, _from_base64(header.value)))
            except ValueError as error:
                raise BadRecord(f"record {number}: header {header.name!r}: {error}") from None
        else:
            found.append((header.name, header.value.encode()))
    return tuple(found)


def record_texts(
    topic: str, partition: int, records: Sequence[Record], formats: Formats
) -> list[bytes]:
    """Each record as JSON on one line, as a `RecordOut` reads."""
    head = b'{"topic":' + _encode(topic) + b',"key":'
    tail = b',"partition":%d,"offset":' % partition
    write_key, write_value = _WRITERS["key", formats.key], _WRITERS["value", formats.value]
    texts = []
    for offset, timestamp, key, value, headers in records:
        texts.append(
            b'%b%b,"value":%b%b%d,"timestamp":%d%b}'
            % (
                head,
                _NULL if key is None else write_key(key),
                _NULL if value is None else write_value(value),
                tail,
                offset,
                timestamp,
                b"" if not headers else b',"headers":' + _encode(_shown_headers(headers)),
            )
        )
    return texts


def _shown_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[RecordHeader]:
    shown = []
    for name, value in headers:
        if value is None:
            shown.append(RecordHeader(name))
            continue
        try:
            shown.append(RecordHeader(name, value.decode()))
        except UnicodeDecodeError:
            text = b2a_base64(value, newline=False).decode()
            shown.append(RecordHeader(name, text, "binary"))
    return shown


def is_json(data: bytes) -> bool:
    """Whether this can be shown as JSON."""
    try:
        _check_json(data)
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _json_writer(marker: bytes) -> Callable[[bytes], bytes]:
    as_text = _text_writer(marker, b',"%b":"text"' % marker)

    def write(data: bytes) -> bytes:
        if not is_json(data):
            return as_text(data)
        if b"\n" in data or b"\r" in data:  # a record is one line
            return msgspec.json.format(data, indent=-1)
        return data

    return write


def _text_writer(marker: bytes, suffix: bytes = b"") -> Callable[[bytes], bytes]:
    as_binary = _binary_writer(b',"%b":"binary"' % marker)

    def write(data: bytes) -> bytes:
        try:
            return _encode(data.decode()) + suffix
        except UnicodeDecodeError:
            return as_binary(data)

    return write


def _binary_writer(suffix: bytes = b"") -> Callable[[bytes], bytes]:
    def write(data: bytes) -> bytes:
        return b'"%b"%b' % (b2a_base64(data, newline=False), suffix)

    return write


_WRITERS: Final[dict[tuple[str, str], Callable[[bytes], bytes]]] = {
    (field, format): writer
    for field, marker in (("key", b"key_format"), ("value", b"value_format"))
    for format, writer in (
        ("json", _json_writer(marker)),
        ("text", _text_writer(marker)),
        ("binary", _binary_writer()),
    )
}
