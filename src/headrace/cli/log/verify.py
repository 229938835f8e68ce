"""`headrace log verify PATH`: is everything on disk as it was written?"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import Output, wants_json
from headrace.cli.output import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from headrace.protocol.records.header import BatchHeader


@dataclass(slots=True)
class Findings:
    """What one segment holds, and what is wrong with it."""

    segment: Path
    batches: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


def register(group: typer.Typer) -> None:
    group.command()(verify)


def verify(
    path: Annotated[Path, typer.Argument(help="A segment, partition or data directory.")],
    output: Output = "table",
) -> None:
    """Check every batch, record and index entry; exit 1 if anything is wrong.

    A running broker's last segment may end in the middle of a write: stop the broker first.
    """
    from headrace.cli.log.segment_files import find_segments

    as_json = wants_json(output)
    segments = find_segments(path)
    all_findings = []
    with progress_bar() as progress:
        task = progress.add_task("verifying", total=len(segments))
        for segment in segments:
            all_findings.append(check_segment(segment))
            progress.advance(task)
    _report(all_findings, as_json=as_json)
    if any(findings.problems for findings in all_findings):
        sys.exit(1)


def check_segment(segment: Path) -> Findings:
    """Walk the data file, then compare both indexes with what was found."""
    from headrace.core.errors import HeadraceError

    findings = Findings(segment)
    batches: dict[int, BatchHeader] = {}
    try:
        _check_data(findings, batches)
    except HeadraceError as error:
        findings.problems.append(str(error))
    _check_offset_index(findings, batches)
    _check_time_index(findings, batches)
    return findings


def _check_data(findings: Findings, found: "dict[int, BatchHeader]") -> None:
    from headrace.cli.log.segment_files import base_offset, batches
    from headrace.core.errors import HeadraceError
    from headrace.protocol.records.decode import iterate_records
    from headrace.protocol.records.header import crc_matches

    expected = base_offset(findings.segment)
    for position, header, data in batches(findings.segment):
        found[position] = header
        findings.batches += 1
        findings.bytes += header.size
        if header.base_offset < expected:
            findings.problems.append(
                f"batch at {position}: offset {header.base_offset}, expected {expected} or more"
            )
        expected = header.last_offset + 1
        if not crc_matches(data, 0, header):
            findings.problems.append(f"batch at {position}: the checksum does not match")
            continue
        try:
            count = sum(1 for _ in iterate_records(data, 0, header))
        except HeadraceError as error:
            findings.problems.append(f"batch at {position}: {error}")
            continue
        findings.records += count
        if count != header.record_count:
            findings.problems.append(
                f"batch at {position}: {count} records, the header says {header.record_count}"
            )


def _check_offset_index(findings: Findings, batches: "dict[int, BatchHeader]") -> None:
    from headrace.cli.log.segment_files import base_offset
    from headrace.log.names import INDEX
    from headrace.log.sparse_index import OFFSET_ENTRY

    base = base_offset(findings.segment)
    for relative, position in _entries(findings.segment.with_suffix(INDEX), OFFSET_ENTRY):
        header = batches.get(position)
        if header is None:
            findings.problems.append(f"index: no batch at position {position}")
        elif not header.base_offset <= base + relative <= header.last_offset:
            findings.problems.append(
                f"index: offset {base + relative} is not in the batch at position {position}"
            )


def _check_time_index(findings: Findings, batches: "dict[int, BatchHeader]") -> None:
    from headrace.log.names import TIME_INDEX
    from headrace.log.sparse_index import TIME_ENTRY

    newest = max((header.max_timestamp for header in batches.values()), default=-1)
    before = -1
    for timestamp, _ in _entries(findings.segment.with_suffix(TIME_INDEX), TIME_ENTRY):
        if not before <= timestamp <= newest:
            findings.problems.append(f"time index: {timestamp} is out of place")
        before = timestamp


def _entries(path: Path, entry: Struct) -> Iterator[tuple[int, int]]:
    """The entries of an index file; Kafka fills the end of a live one with zeros."""
    if not path.exists():
        return
    data = path.read_bytes()
    for first, second in entry.iter_unpack(data[: len(data) // entry.size * entry.size]):
        if first or second:
            yield first, second


def _report(all_findings: list[Findings], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "segment": str(each.segment),
                    "batches": each.batches,
                    "records": each.records,
                    "bytes": each.bytes,
                    "problems": each.problems,
                }
                for each in all_findings
            ]
        )
        return
    rows = [
        [
            f"{each.segment.parent.name}/{each.segment.name}",
            each.batches,
            each.records,
            each.bytes,
            "; ".join(each.problems) or "none",
        ]
        for each in all_findings
    ]
    print_table(["segment", "batches", "records", "bytes", "problems"], rows)
