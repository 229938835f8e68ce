"""`headrace produce TOPIC`: records from arguments, or one per line of stdin."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, overload

import typer

from headrace.cli.json_records import BadJsonLine, Headers, JsonRecord, parse_record
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, Topic, connect, wants_json
from headrace.cli.output import counted, print_json
from headrace.core.errors import InvalidConfig

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace.client import ProducerSettings, RecordMetadata

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PENDING_MAX = 10_000
"""Records that may await their acknowledgement, so that endless input needs no endless memory."""


def register(app: typer.Typer) -> None:
    app.command()(produce)


def produce(
    topic: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(help="Values to send; without any, each line of stdin.", show_default=False),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Splits key from value in a line.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only to this.")
    ] = None,
    line_format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="text|json",
            help="Lines are values, or JSON with value, key, headers, partition, timestamp.",
        ),
    ] = "text",
    acks: Annotated[str, typer.Option(metavar="all|1|0", help="Who must have it.")] = "all",
    codec: Annotated[str, typer.Option(metavar="none|gzip|snappy|lz4|zstd")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Send records and wait until they are acknowledged."""
    as_json = wants_json(output)
    if line_format not in ("text", "json"):
        raise typer.BadParameter(f"{line_format!r} is neither text nor json", param_hint="--format")
    common = JsonRecord(None, _encoded(key), _headers(header), partition, None)
    lines = [_encoded(value) for value in values] if values else _lines_of_stdin()
    if line_format == "json":
        outgoing = _from_json(lines, common)
    else:
        outgoing = _from_text(lines, common, _encoded(key_separator))
    sent = _send_all(bootstrap, topic, outgoing, settings_of(acks, codec))
    if as_json:
        print_json(sent)
    else:
        print(f"sent {counted(sent['records'], 'record')} to {topic}")


def _send_all(
    bootstrap: str, topic: str, outgoing: Iterator[JsonRecord], settings: "ProducerSettings"
) -> dict[str, Any]:
    """Send everything; the first record that fails, or cannot be read, is the command's error."""
    last: dict[int, int] = {}
    pending: deque[Future[RecordMetadata]] = deque()
    count = 0
    refused: BadJsonLine | None = None

    def settle(down_to: int) -> None:
        while len(pending) > down_to:
            metadata = pending.popleft().result()
            last[metadata.partition] = metadata.offset

    with connect(bootstrap) as client, client.producer(settings) as producer:
        try:
            for record in outgoing:
                future = producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                count += 1
                pending.append(future)
                settle(PENDING_MAX)
        except BadJsonLine as error:
            refused = error  # what went before is sent all the same, and counted
        producer.flush()
        settle(0)
    if refused is not None:
        raise InvalidConfig(
            f"{refused} (sent before it: {counted(count, 'record')})",
            hint='write {"key": "a", "value": "b"}, one object per line',
        ) from refused
    return {"topic": topic, "records": count, "last_offsets": last}


def settings_of(acks: str, codec: str) -> "ProducerSettings":
    """Producer settings out of the command line's words."""
    from headrace.client import ProducerSettings

    if acks not in ("all", "1", "0"):
        raise typer.BadParameter(f"{acks!r} is not all, 1 or 0", param_hint="--acks")
    if codec not in CODECS:
        raise typer.BadParameter(f"{codec!r} is not {', '.join(CODECS)}", param_hint="--codec")
    chosen: Any = acks if acks == "all" else int(acks)
    named: Any = codec
    return ProducerSettings(acks=chosen, codec=named)


def _lines_of_stdin() -> Iterator[bytes]:
    """Lines as bytes: what is not UTF-8 is a value like any other."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _from_text(
    lines: Iterable[bytes], common: JsonRecord, key_separator: bytes | None
) -> Iterator[JsonRecord]:
    for line in lines:
        key, separator, value = line.partition(key_separator) if key_separator else (b"", b"", line)
        if separator:
            yield common._replace(key=key, value=value)
        else:
            yield common._replace(value=line)


def _from_json(lines: Iterable[bytes], common: JsonRecord) -> Iterator[JsonRecord]:
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_record(line)
        except BadJsonLine as error:
            raise BadJsonLine(f"line {number}: {error}") from error
        yield record._replace(
            key=common.key if record.key is None else record.key,
            headers=[*common.headers, *record.headers],
            partition=common.partition if record.partition is None else record.partition,
        )


@overload
def _encoded(word: str) -> bytes: ...
@overload
def _encoded(word: None) -> None: ...
def _encoded(word: str | None) -> bytes | None:
    """A word of the command line as the bytes that were typed."""
    return None if word is None else word.encode("utf-8", "surrogateescape")


def _headers(pairs: list[str] | None) -> Headers:
    headers: Headers = []
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--header")
        headers.append((name, _encoded(value)))
    return headers
