"""Offsets as Spark keeps them, and what is worked out from them, as pure functions.

A checkpoint holds `{"topic": {"0": 17}}`, the shape of Spark's Kafka connector: the offset of the
next record of each partition. The same start, end and options give the same plan, so a batch that
is run again after a crash reads exactly what it read before.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappush, heapreplace
from itertools import pairwise
from typing import Any, Final

from headrace.client import TopicPartition
from headrace.core.errors import InvalidConfig

Offsets = Mapping[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
# What a task reads in about the time that it takes to start one: below it, more tasks do not help.
ROWS_PER_TASK: Final = 50_000


class End(Enum):
    """Both ends of what a partition holds."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time: one for all partitions, or one for each."""

    everywhere_ms: int | None = None
    by_partition: Offsets | None = None


Bound = End | AtTimes | Offsets


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A stretch of one partition: from `start` up to `end`, which is not in it."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def parse_offsets(text: str, name: str) -> dict[TopicPartition, int]:
    """Offsets (or times) by partition from JSON, as an option or a checkpoint holds them."""
    try:
        return offsets_from(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        raise InvalidConfig(
            f'{name}={text!r} is not earliest, latest or JSON such as {{"topic":{{"0":23,"1":-2}}}}'
        ) from None


def offsets_from(read: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Offsets by partition from the decoded JSON; ValueError where one is not a number."""
    found: dict[TopicPartition, int] = {}
    for topic, parts in read.items():
        for part, offset in parts.items():
            if type(offset) is not int:
                raise ValueError(f"{topic}-{part}: {offset!r} is no offset")
            found[TopicPartition(topic, int(part))] = offset
    return found


def to_json(offsets: Offsets) -> JsonOffsets:
    """The shape of the checkpoint. In order: Spark compares offsets as text."""
    out: JsonOffsets = {}
    for partition in sorted(offsets):
        out.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return out


def require_same_partitions(
    given: Offsets, partitions: Iterable[TopicPartition], name: str
) -> None:
    """Offsets named one by one must name every partition, and none that is not there."""
    there = set(partitions)
    missing = sorted(there - set(given))
    extra = sorted(set(given) - there)
    if missing or extra:
        said = [f"it lacks {', '.join(map(str, missing))}"] if missing else []
        said += [f"it names {', '.join(map(str, extra))}, which is not read"] if extra else []
        raise InvalidConfig(
            f"{name} must name every partition that is read, with -2 for earliest and -1 for "
            f"latest: {' and '.join(said)}"
        )


# -- how much a batch takes


def limited(start: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Where a batch ends that takes about `offsets_max`, split in proportion to what waits.

    As in the connector, a partition with anything waiting gives at least one record, so that a
    slow one beside fast ones is never starved.
    """
    waiting = {each: end[each] - start.get(each, end[each]) for each in end}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= offsets_max:
        return dict(end)
    out: dict[TopicPartition, int] = {}
    for partition, size in waiting.items():
        if size <= 0:
            out[partition] = end[partition]
            continue
        share = offsets_max * size / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        out[partition] = min(start[partition] + taken, end[partition])
    return out


def new_offsets(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between two places."""
    return sum(max(end[each] - start.get(each, 0), 0) for each in end)


def waits_for_more(
    waiting: int, offsets_min: int | None, waited_ms: float, delay_ms_max: float
) -> bool:
    """Whether a batch should wait for `offsets_min`, which it does no longer than the delay."""
    return offsets_min is not None and waiting < offsets_min and waited_ms < delay_ms_max


# -- how it is divided


def divided(
    ranges: Sequence[Range], partitions_min: int | None, records_max: int | None
) -> list[Range]:
    """Ranges cut so that none has more than `records_max`, and there are `partitions_min` of them.

    Large ranges are cut first; offsets decide, since nobody knows which of them have records.
    """
    found = sorted(each for each in ranges if each.size > 0)
    if records_max is not None:
        found = [part for each in found for part in _cut(each, -(-each.size // records_max))]
    if partitions_min is None or len(found) >= partitions_min:
        return found
    pieces = [1] * len(found)
    # The range whose pieces are largest now; ties go to the first, so plans repeat.
    largest: list[tuple[float, int]] = [(-each.size, number) for number, each in enumerate(found)]
    heapify(largest)
    for _ in range(partitions_min - len(found) if found else 0):
        size, number = -largest[0][0], largest[0][1]
        if size <= 1:
            break
        pieces[number] += 1
        heapreplace(largest, (-found[number].size / pieces[number], number))
    cut = zip(found, pieces, strict=True)
    return [part for each, count in cut for part in _cut(each, count)]


def _cut(whole: Range, count: int) -> list[Range]:
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [Range(whole.partition, low, high) for low, high in pairwise(edges) if high > low]


def packed(
    ranges: Sequence[Range], tasks_min: int, records_max: int | None = None
) -> list[list[Range]]:
    """Ranges gathered into tasks of about equal size.

    Each task costs some 30 ms whatever it reads: many small partitions go into few tasks, at
    least `tasks_min`, while large ones keep a task each.
    """
    total = sum(each.size for each in ranges)
    wanted = min(len(ranges), max(tasks_min, -(-total // ROWS_PER_TASK)))
    tasks: list[list[Range]] = [[] for _ in range(wanted)]
    # By load, then by number: the first of the emptiest, so that plans repeat.
    loads = [(0, number) for number in range(wanted)]
    for each in sorted(ranges, key=lambda one: (-one.size, one)):
        load, place = loads[0]
        if records_max is not None and load and load + each.size > records_max:
            place = len(tasks)
            tasks.append([each])
            heappush(loads, (each.size, place))
        else:
            tasks[place].append(each)
            heapreplace(loads, (load + each.size, place))
    return [sorted(task) for task in tasks if task]


# -- what went missing


def losses(start: Offsets, end: Offsets, first_of_new: Offsets) -> list[str]:
    """What lies between two places and cannot be read any more, in words.

    `first_of_new` has the earliest offset of partitions that appeared since `start`.
    """
    found = [f"partition {each} is gone" for each in sorted(set(start) - set(end))]
    for partition, offset in sorted(first_of_new.items()):
        if offset != 0:
            found.append(f"new partition {partition} starts at offset {offset} instead of 0")
    found += [
        f"partition {each} ends at offset {end[each]}, before {start[each]} where it was read "
        "last: was the topic made anew?"
        for each in sorted(set(start) & set(end))
        if end[each] < start[each]
    ]
    return found


def ranges_between(start: Offsets, end: Offsets, first_of_new: Offsets) -> list[Range]:
    """What a batch from `start` to `end` reads, partition by partition."""
    begins = {**start, **first_of_new}
    found = [Range(each, begins[each], end[each]) for each in sorted(end) if each in begins]
    return [each for each in found if each.size > 0]
