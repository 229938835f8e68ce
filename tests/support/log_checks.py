"""Whether the files of a log agree with each other, judged without the code that wrote them."""

import struct

from headrace.core.files import FileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.protocol.records.header import BatchHeader, crc_matches, iterate_headers


def log_problems(log: PartitionLog) -> list[str]:
    """What is wrong with data and index files on disk; entries still in memory do not count."""
    found: list[str] = []
    previous_end = 0
    for segment in log.segments:
        if log.files.exists(segment.path()):
            if segment.base_offset < previous_end:
                found.append(f"{segment.path()} overlaps the one before it")
            found += _segment_problems(log.files, segment)
            previous_end = segment.next_offset
    return found


def _segment_problems(files: FileSystem, segment: Segment) -> list[str]:
    data = files.read_file(segment.path())[: segment.size]
    batches = dict(iterate_headers(data))
    found = [
        f"{segment.path()}: bad checksum at {position}"
        for position, header in batches.items()
        if not crc_matches(memoryview(data), position, header)
    ]
    by_last_offset = {header.last_offset: header for header in batches.values()}
    found += _offset_problems(files, segment, batches)
    return found + _time_problems(files, segment, by_last_offset)


def _entries(files: FileSystem, path: str, form: str) -> list[tuple[int, int]]:
    if not files.exists(path):
        return []
    data = files.read_file(path)
    return list(struct.iter_unpack(form, data[: len(data) - len(data) % struct.calcsize(form)]))


def _offset_problems(
    files: FileSystem, segment: Segment, batches: dict[int, BatchHeader]
) -> list[str]:
    path = segment.path(".index")
    found: list[str] = []
    before = -1
    for relative, position in _entries(files, path, ">II"):
        header = batches.get(position)
        if header is None or header.last_offset != segment.base_offset + relative:
            found.append(f"{path}: {relative} is not the last offset of a batch at {position}")
        if relative <= before:
            found.append(f"{path}: {relative} follows {before}")
        before = relative
    return found


def _time_problems(
    files: FileSystem, segment: Segment, by_last_offset: dict[int, BatchHeader]
) -> list[str]:
    path = segment.path(".timeindex")
    found: list[str] = []
    before = -1
    for timestamp, relative in _entries(files, path, ">qI"):
        header = by_last_offset.get(segment.base_offset + relative)
        if header is None or header.max_timestamp != timestamp:
            found.append(f"{path}: no batch that ends at {relative} has timestamp {timestamp}")
        if timestamp <= before:
            found.append(f"{path}: {timestamp} follows {before}")
        before = timestamp
    return found
