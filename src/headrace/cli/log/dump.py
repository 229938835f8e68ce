"""`headrace log dump PATH`: batches, and records if asked, as they lie on disk."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.options import Output, wants_json
from headrace.cli.output import print_line, readable


def register(group: typer.Typer) -> None:
    group.command()(dump)


def dump(
    path: Annotated[Path, typer.Argument(help="A segment, partition or data directory.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Records too.")] = False,
    output: Output = "table",
) -> None:
    """Print every batch of the segments found; ends with an error at the first damaged one."""
    from headrace.cli.log.segment_files import batches, find_segments

    as_json = wants_json(output)
    for segment in find_segments(path):
        if not as_json:
            print(segment)
        for position, header, data in batches(segment):
            batch = _batch(str(segment), position, header, data)
            found = _records(header, data) if records else []
            if as_json:
                print_line({**batch, "records": found} if records else batch)
                continue
            print("  " + " ".join(f"{k}={v}" for k, v in batch.items() if k != "segment"))
            for record in found:
                print("    " + " ".join(f"{k}={v}" for k, v in record.items()))


def _batch(segment: str, position: int, header: Any, data: memoryview) -> dict[str, Any]:
    from headrace.protocol.compression import Codec
    from headrace.protocol.records.header import crc_matches

    return {
        "segment": segment,
        "position": position,
        "offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "bytes": header.size,
        "codec": Codec(header.codec).name.lower(),
        "epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc_valid": crc_matches(data, 0, header),
    }


def _records(header: Any, data: memoryview) -> list[dict[str, Any]]:
    from headrace.protocol.records.decode import iterate_records

    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": readable(record.key),
            "value": readable(record.value),
            "headers": {str(name): readable(value) for name, value in record.headers},
        }
        for record in iterate_records(data, 0, header)
    ]
