"""`headrace consume TOPIC`: print records from an offset or a time on."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.consume_group import member_settings, shared_records
from headrace.cli.consumer_status import ConsumerStatus
from headrace.cli.json_records import json_data, json_headers
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Topic, connect
from headrace.cli.output import print_line, readable
from headrace.cli.sigterm import exit_on_sigterm
from headrace.cli.times import milliseconds

if TYPE_CHECKING:
    from headrace.client import Client, OffsetSpec, ReceivedRecord
    from headrace.client.core.settings import Isolation
    from headrace.core.ids import TopicPartition

POLL_MS = 500


def register(app: typer.Typer) -> None:
    app.command()(consume)


def consume(
    topic: Topic,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Only this one; may be repeated."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset (7), an offset from the end (-7), or a time "
            "(2026-01-31T12:00, or @MILLISECONDS).",
        ),
    ] = "beginning",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=0, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow",
            "-F/-e",
            help="Wait for more at the end, or stop there (the default).",
        ),
    ] = False,
    line_format: Annotated[
        str,
        typer.Option("--format", "-f", metavar="value|key|json", help="What to print per record."),
    ] = "value",
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Share the topic with this group, from where it left off; what was printed is "
            "committed. --from is then beginning or end, for partitions without an offset.",
        ),
    ] = None,
    group_protocol: Annotated[
        str,
        typer.Option(
            "--group-protocol", metavar="classic|consumer", help="Who assigns: members or broker."
        ),
    ] = "classic",
    committed: Annotated[
        bool, typer.Option("--committed", help="Only records of committed transactions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic; `-f json` shows key, headers, partition, offset and time."""
    from headrace.client import ReaderSettings

    if line_format not in ("value", "key", "json"):
        raise typer.BadParameter(f"{line_format!r} is not value, key or json", param_hint="-f")
    isolation: Isolation = "read_committed" if committed else "read_uncommitted"
    if group is not None:
        if partition:
            raise typer.BadParameter("a group chooses the partitions: give -p or --group")
        member = member_settings(group, group_protocol, start, isolation)
        with exit_on_sigterm(), connect(bootstrap) as client:
            for record in shared_records(client, topic, member, count, follow=follow):
                _show(record, line_format)
        sys.stdout.flush()
        return
    settings = ReaderSettings(isolation=isolation)
    with connect(bootstrap) as client:
        starts = _starts(client, topic, partition, start)
        ends = None if follow else _ends(client, list(starts))
        with client.reader(starts, settings) as reader:
            records = _records(reader, starts, ends)
            for record in islice(records, count):
                _show(record, line_format)
    sys.stdout.flush()


def _starts(
    client: "Client", topic: str, wanted: list[int] | None, start: str
) -> "dict[TopicPartition, OffsetSpec | int]":
    from headrace.client import EARLIEST, LATEST, at_time
    from headrace.core.ids import TopicPartition

    described = client.admin.describe_topics([topic])[topic]
    known = [each.partition for each in described.partitions]
    unknown = sorted(set(wanted or ()) - set(known))
    if unknown:
        raise typer.BadParameter(f"{topic} has partitions 0 to {max(known)}, not {unknown[0]}")
    chosen = [TopicPartition(topic, number) for number in wanted or known]
    if start in ("beginning", "end"):
        return dict.fromkeys(chosen, EARLIEST if start == "beginning" else LATEST)
    if start.lstrip("-").isdecimal():
        offset = int(start)
        ends = _ends(client, chosen)
        if offset >= 0:
            return dict.fromkeys(_that_have(offset, ends), offset)
        first = client.admin.list_offsets(dict.fromkeys(chosen, EARLIEST))
        return {each: max(first[each].offset, ends[each] + offset) for each in chosen}
    return dict.fromkeys(chosen, at_time(milliseconds(start, "--from", or_else="no offset and ")))


def _that_have(offset: int, ends: "dict[TopicPartition, int]") -> "list[TopicPartition]":
    """The partitions that reach as far as the offset; the others are told, or are an error."""
    from headrace.core.errors import ApiError, ErrorCode

    reached = [each for each, end in ends.items() if offset <= end]
    beyond = [f"{each} ends at offset {end}" for each, end in ends.items() if offset > end]
    if not reached:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"there is no offset {offset}: {', '.join(beyond)}",
            hint="count from the end with --from -7, or wait for new records with --from end -F",
        )
    for each in beyond:
        print(f"headrace: nothing to read from {offset} on: {each}", file=sys.stderr)
    return reached


def _ends(client: "Client", partitions: "list[TopicPartition]") -> "dict[TopicPartition, int]":
    from headrace.client import LATEST

    listed = client.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {each: found.offset for each, found in listed.items()}


def _records(
    reader: Any, starts: Any, ends: "dict[TopicPartition, int] | None"
) -> "Iterator[ReceivedRecord]":
    """Records until every partition has reached its end (or for ever, when following)."""
    from headrace.client import ReceivedRecord

    watch = ConsumerStatus()
    while ends is None or any(reader.position(each) < ends[each] for each in starts):
        found = reader.poll(timeout_ms=POLL_MS)
        watch.report_broker(reader.last_error)
        for where, records in found.items():
            for record in records:
                if ends is None or record.offset < ends[where]:
                    yield ReceivedRecord(where.topic, where.partition, *record)
        sys.stdout.flush()  # nobody at the end of a pipe should wait for the buffer to be full


def iso_time(timestamp_ms: int) -> str | None:
    """ISO 8601, or nothing for a time beyond the calendar: producers may write any number."""
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return when.isoformat(timespec="milliseconds")


def _show(record: "ReceivedRecord", line_format: str) -> None:
    if line_format == "json":
        print_line(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "time": iso_time(record.timestamp),
                "key": json_data(record.key),
                "value": json_data(record.value),
                "headers": json_headers(record.headers),
            }
        )
        return
    value = readable(record.value) or ""
    print(value if line_format == "value" else f"{readable(record.key) or ''}\t{value}")
