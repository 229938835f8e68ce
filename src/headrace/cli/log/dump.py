"""`headrace log dump PATH`: batches, and records if asked, as they lie on disk."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.json_records import json_data, json_headers
from headrace.cli.options import Output, wants_json
from headrace.cli.output import print_line, readable


def register(group: typer.Typer) -> None:
    group.command()(dump)


def dump(
    path: Annotated[Path, typer.Argument(help="A segment, partition or data directory.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Records too.")] = False,
    output: Output = "table",
) -> None:
    """Print every batch of the segments found; exit 1 if one is damaged."""
    from headrace.cli.log.segment_files import batches, find_segments

    as_json = wants_json(output)
    damaged = 0
    for segment in find_segments(path):
        if not as_json:
            print(segment)
        for position, header, data in batches(segment):
            batch = _batch(str(segment), position, header, data)
            damaged += not batch["crc_valid"]
            # What a damaged batch would decode to is not what somebody wrote.
            wanted = records and batch["crc_valid"]
            found = _records(header, data, as_json=as_json) if wanted else []
            if as_json:
                print_line({**batch, "records": found} if records else batch)
                continue
            print("  " + " ".join(f"{k}={v}" for k, v in batch.items() if k != "segment"))
            for record in found:
                print("    " + " ".join(f"{k}={v}" for k, v in record.items()))
    if damaged:
        sys.stdout.flush()
        print(f"headrace: {damaged} damaged batches (crc_valid is false)", file=sys.stderr)
        sys.exit(1)


def _batch(segment: str, position: int, header: Any, data: memoryview) -> dict[str, Any]:
    from headrace.protocol.compression import Codec
    from headrace.protocol.records.header import crc_matches

    known = header.codec in set(Codec)
    codec = Codec(header.codec).name.lower() if known else f"unknown ({header.codec})"
    return {
        "segment": segment,
        "position": position,
        "offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "bytes": header.size,
        "codec": codec,
        "epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc_valid": crc_matches(data, 0, header),
    }


def _records(header: Any, data: memoryview, *, as_json: bool) -> list[dict[str, Any]]:
    from headrace.protocol.records.decode import iterate_records

    show = json_data if as_json else readable
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": show(record.key),
            "value": show(record.value),
            "headers": json_headers(record.headers),
        }
        for record in iterate_records(data, 0, header)
    ]
