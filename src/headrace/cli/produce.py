"""`headrace produce TOPIC`: records from arguments, or one per line of stdin."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, Topic, connect, wants_json
from headrace.cli.output import print_json
from headrace.core.errors import InvalidConfig

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace.client import ProducerSettings, RecordMetadata

PENDING_MAX = 10_000
"""Records that may await their acknowledgement, so that endless input needs no endless memory."""

Headers = list[tuple[str, bytes | None]]


class Outgoing(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


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
        int | None, typer.Option("--partition", "-p", help="Only to this.")
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
    common = Outgoing(None, _encoded(key), _headers(header), partition, None)
    lines: Iterable[str] = values if values else (line.rstrip("\n") for line in sys.stdin)
    if line_format == "json":
        outgoing = _from_json(lines, common)
    else:
        outgoing = _from_text(lines, common, key_separator)
    sent = _send_all(bootstrap, topic, outgoing, settings_of(acks, codec))
    if as_json:
        print_json(sent)
    else:
        print(f"sent {sent['records']} records to {topic}")


def _send_all(
    bootstrap: str, topic: str, outgoing: Iterator[Outgoing], settings: "ProducerSettings"
) -> dict[str, Any]:
    """Send everything; the first record that fails is the command's error."""
    last: dict[int, int] = {}
    pending: deque[Future[RecordMetadata]] = deque()
    count = 0

    def settle(down_to: int) -> None:
        while len(pending) > down_to:
            metadata = pending.popleft().result()
            last[metadata.partition] = metadata.offset

    with connect(bootstrap) as client, client.producer(settings) as producer:
        for record in outgoing:
            count += 1
            future = producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            pending.append(future)
            settle(PENDING_MAX)
        producer.flush()
        settle(0)
    return {"topic": topic, "records": count, "last_offsets": last}


def settings_of(acks: str, codec: str) -> "ProducerSettings":
    """Producer settings out of the command line's words."""
    from headrace.client import ProducerSettings

    if acks not in ("all", "1", "0"):
        raise typer.BadParameter(f"{acks!r} is not all, 1 or 0", param_hint="--acks")
    chosen: Any = acks if acks == "all" else int(acks)
    named: Any = codec
    return ProducerSettings(acks=chosen, codec=named)


def _from_text(
    lines: Iterable[str], common: Outgoing, key_separator: str | None
) -> Iterator[Outgoing]:
    for line in lines:
        key, separator, value = line.partition(key_separator) if key_separator else ("", "", line)
        if separator:
            yield common._replace(key=key.encode(), value=value.encode())
        else:
            yield common._replace(value=line.encode())


def _from_json(lines: Iterable[str], common: Outgoing) -> Iterator[Outgoing]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidConfig(
                f"line {number} is not JSON: {error.msg}", hint='write {"key": "a", "value": "b"}'
            ) from error
        if not isinstance(record, dict):
            record = {"value": line}
        headers = record.get("headers") or {}
        yield Outgoing(
            _encoded(record.get("value")),
            _encoded(record.get("key")) or common.key,
            [*common.headers, *((name, _encoded(value)) for name, value in headers.items())],
            record.get("partition", common.partition),
            record.get("timestamp"),
        )


def _encoded(value: Any) -> bytes | None:
    """Text as UTF-8; any other JSON value as its JSON text; null stays null."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _headers(pairs: list[str] | None) -> Headers:
    return [(name, value.encode()) for name, _, value in (p.partition("=") for p in pairs or ())]
