"""`headrace group reset NAME`: replay, or skip, by moving what is committed."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.group.describe import Group, named
from headrace.cli.group.offsets_file import read_offsets
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import counted, print_json, print_table
from headrace.cli.times import duration_ms, milliseconds

if TYPE_CHECKING:
    from headrace.client import Client, OffsetMove, OffsetSpec, ShiftBy
    from headrace.core.ids import TopicPartition

Target = "int | OffsetSpec | ShiftBy"
_TARGETS = (
    "--to-earliest, --to-latest, --to-offset, --to-time, --by-duration, --shift-by, --from-file"
)


def register(group: typer.Typer) -> None:
    group.command()(reset)


def reset(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Only these; may be repeated."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition the group has an offset for.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record there is.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: only what comes from now on.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="To this offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="To the first record of this time or later (2026-01-31T12:00, @MILLISECONDS).",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="DURATION", help="So far back from now (90m, 1d12h, PT1H)."
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="So many records on; back if negative.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", help="CSV lines of topic,partition,offset."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and leave it at that.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Move a group's committed offsets; refused while it has members.

    Offsets stay within what the partition has: one before its start becomes the start.
    """
    as_json = wants_json(output)
    if not group:
        raise typer.BadParameter("the group needs a name", param_hint="GROUP")
    target = _target(to_earliest, to_latest, to_offset, to_time, by_duration, shift_by, from_file)
    if from_file is None and bool(topic) == all_topics:
        raise typer.BadParameter("give --topic TOPIC or --all-topics, one of the two")
    from_lines = {} if from_file is None else read_offsets(from_file, group)
    with connect(bootstrap) as client:
        readers = _active_readers(client, group)
        in_use, is_new = readers or [], readers is None
        if in_use and not dry_run:
            _refuse(group, in_use)
        wanted: dict[TopicPartition, int | OffsetSpec | ShiftBy] = dict(from_lines)
        if target is not None:
            wanted = dict.fromkeys(_chosen(client, group, topic), target)
        moves = client.admin.plan_offsets(group, wanted)
        if not as_json:
            _show(moves)
        if moves and is_new:
            effect = "would create" if dry_run else "creates"
            print(f"headrace: group {group} does not exist yet: this {effect} it", file=sys.stderr)
        _report_clamped(moves, wanted)
        if moves and not dry_run:
            if not yes:
                _confirm(group, len(moves), is_new=is_new)
            client.admin.alter_offsets(group, {each.partition: each.after for each in moves})
    if as_json:
        rows = [_row(each) for each in moves]
        print_json({"group": group, "dry_run": dry_run, "new_group": is_new, "offsets": rows})
    elif not moves:
        print("nothing to move")
    elif not dry_run:
        print(f"moved {counted(len(moves), 'offset')} of {group}")
    if dry_run and in_use:
        print(f"headrace: now this would be refused: {_reason(group, in_use)}", file=sys.stderr)


def _target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: Path | None,
) -> "int | OffsetSpec | ShiftBy | None":
    """Where to, the same for every partition; None if a file says it."""
    from headrace.client import EARLIEST, LATEST, ShiftBy, at_time

    targets: list[int | OffsetSpec | ShiftBy | None] = []
    if to_earliest:
        targets.append(EARLIEST)
    if to_latest:
        targets.append(LATEST)
    if to_offset is not None:
        targets.append(to_offset)
    if to_time is not None:
        targets.append(at_time(milliseconds(to_time, "--to-time")))
    if by_duration is not None:
        now_ms = time.time_ns() // 1_000_000
        targets.append(at_time(max(now_ms - duration_ms(by_duration, "--by-duration"), 0)))
    if shift_by is not None:
        targets.append(ShiftBy(shift_by))
    if from_file is not None:
        targets.append(None)
    if len(targets) != 1:
        raise typer.BadParameter(f"say where to, once: {_TARGETS}")
    return targets[0]


def _confirm(group: str, count: int, *, is_new: bool) -> None:
    what = counted(count, "offset") if count > 1 else "this offset"
    question = f"Create group {group} with {what}?" if is_new else f"Move {what} of group {group}?"
    typer.confirm(question, abort=True, err=True)


def _report_clamped(
    moves: "list[OffsetMove]", wanted: "Mapping[TopicPartition, int | OffsetSpec | ShiftBy]"
) -> None:
    """Offsets that were asked for and that the partition does not have."""
    from headrace.client import ShiftBy

    for move in moves:
        target = wanted[move.partition]
        if isinstance(target, ShiftBy) and move.before is not None:
            target = move.before + target.records
        if isinstance(target, int) and target != move.after:
            print(
                f"headrace: {move.partition} has offsets {move.start} to {move.end}, "
                f"not {target}: taking {move.after}",
                file=sys.stderr,
            )


def _active_readers(client: "Client", group: str) -> list[str] | None:
    """The members of the group by name; None if there is no such group yet."""
    from headrace.core.errors import ApiError, ErrorCode

    try:
        described = client.admin.describe_groups([group])[group]
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return [named(member) for member in described.members]


def _refuse(group: str, in_use: list[str]) -> None:
    from headrace.client import GroupInUse
    from headrace.core.errors import ErrorCode

    raise GroupInUse(
        ErrorCode.NON_EMPTY_GROUP,
        _reason(group, in_use),
        hint="stop them first; --dry-run shows what a reset would do",
    )


def _reason(group: str, in_use: list[str]) -> str:
    some = ", ".join(in_use[:5]) + (f" and {len(in_use) - 5} more" if len(in_use) > 5 else "")
    count = f"{len(in_use)} active members" if len(in_use) > 1 else "an active member"
    return f"group {group} has {count}: {some}"


def _chosen(client: "Client", group: str, topics: list[str] | None) -> "list[TopicPartition]":
    """The partitions meant by --topic, or all that the group has offsets for."""
    from headrace.core.ids import TopicPartition

    if not topics:
        return sorted(client.admin.committed_offsets(group))
    numbers = [_parse_topic(each) for each in topics]
    described = client.admin.describe_topics({name for name, _ in numbers})
    chosen: dict[TopicPartition, None] = {}
    for name, wanted in numbers:
        known = [each.partition for each in described[name].partitions]
        unknown = sorted(set(wanted or ()) - set(known))
        if unknown:
            raise typer.BadParameter(
                f"{name} has partitions 0 to {max(known)}, not {unknown[0]}",
                param_hint="--topic",
            )
        chosen.update(dict.fromkeys(TopicPartition(name, number) for number in wanted or known))
    return list(chosen)


def _parse_topic(text: str) -> tuple[str, list[int]]:
    """`orders` or `orders:0,2`."""
    name, colon, numbers = text.partition(":")
    parts = numbers.split(",") if colon else []
    if not name or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(
            f"{text!r}: expected a topic, or one with partitions as orders:0,2",
            param_hint="--topic",
        )
    return name, [int(part) for part in parts]


def _show(moves: "list[OffsetMove]") -> None:
    if moves:
        rows = [_row(each) for each in moves]
        table = [["-" if cell is None else cell for cell in row.values()] for row in rows]
        print_table(["topic", "partition", "committed", "new offset", "start", "end"], table)


def _row(move: "OffsetMove") -> dict[str, str | int | None]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "committed": move.before,
        "new offset": move.after,
        "start": move.start,
        "end": move.end,
    }
