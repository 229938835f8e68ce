"""What the server says: one line per fact, and a last line that begins with OK or ERR."""

from collections.abc import Sequence
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.gateway.values import Produced
from headrace.protocol.records.decode import Record
from headrace.text.tokenizer import quote

_TEXT_MAX: Final = 400
_CLOSES: Final = "; this connection is closed"


def ok(**facts: object) -> bytes:
    """`OK name=value ...`"""
    return (
        b" ".join((b"OK", *(f"{name}={value}".encode() for name, value in facts.items()))) + b"\n"
    )


def refused(code: str, message: str, *, closes: bool = False) -> bytes:
    """`ERR CODE what to do`, on one line whatever the message holds.

    Where it `closes` the connection it says so, since what was sent behind it is not answered.
    """
    text = " ".join(message.split())[:_TEXT_MAX]
    return f"ERR {code} {text}{_CLOSES if closes else ''}\n".encode(errors="replace")


def failed(error: HeadraceError) -> bytes:
    """An error of the gateway or the broker."""
    parts = [part for part in (error.message, error.hint) if part]
    return refused(error.code.name, "; ".join(parts) or "try again")


def produced(outcomes: Sequence[Produced]) -> list[bytes]:
    """A line for each record."""
    return [
        b"OK partition=%d offset=%d\n" % (partition, offset) if error is None else failed(error)
        for partition, offset, error in outcomes
    ]


def messages(where: TopicPartition, records: Sequence[Record], *, times: bool) -> bytes:
    """`MESSAGE topic partition offset [KEY key] [HEADER name=value] :value`

    A value with line ends in it goes by its length, as in PUBLISH: `... LENGTH n`, then the
    bytes on lines of their own.
    """
    head = b"MESSAGE %b %d " % (where.topic.encode(), where.partition)
    lines: list[bytes] = []
    add = lines.append
    for record in records:
        offset, _, key, value, headers = record
        if (
            key is None
            and value is not None
            and not headers
            and not times
            and b"\n" not in value
            and b"\r" not in value
        ):
            add(b"%b%d :%b\n" % (head, offset, value))
        else:
            add(_full(head, record, times=times))
    return b"".join(lines)


def _full(head: bytes, record: Record, *, times: bool) -> bytes:
    parts = [b"%b%d" % (head, record.offset)]
    if times:
        parts.append(b"AT %d" % record.timestamp)
    if record.key is not None:
        parts.append(b"KEY " + quote(record.key))
    for name, data in record.headers:
        parts.append(b"HEADER " + quote(b"%b=%b" % (name.encode(), data or b"")))
    value = record.value
    if value is None:
        parts.append(b"LENGTH -1\n")
    elif b"\n" in value or b"\r" in value:
        parts.append(b"LENGTH %d\n%b\n" % (len(value), value))
    else:
        parts.append(b":%b\n" % value)
    return b" ".join(parts)


def partitions(found: Sequence[TopicPartition]) -> str:
    """`orders:0,orders:1`, or `-` for none."""
    return ",".join(f"{topic}:{number}" for topic, number in found) or "-"
