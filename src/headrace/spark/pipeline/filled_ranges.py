"""Which offsets backfills have brought to a table: the names of their writes tell.

A table takes a write of one name once, and for ever. A range that is not the same but shares some
offsets has another name, so what is left of the table's history is looked through as well.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.client import TopicPartition
from headrace.spark.delta_table import once_names
from headrace.spark.offsets import Offsets, Range


def range_name(query: str, start: Offsets, end: Offsets) -> str:
    """A name for what lies between two ends; partitions of which nothing does are left out."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for each in sorted(end):
        if end[each] > start[each]:
            ranges.setdefault(each.topic, {})[str(each.partition)] = [start[each], end[each]]
    return _prefix(query) + json.dumps(ranges, separators=(",", ":"))


def earlier_overlap(table: Any, query: str, start: Offsets, end: Offsets) -> Range | None:
    """Offsets that an earlier backfill of this query has written, and that this one would too."""
    for each in _ranges(once_names(table), query):
        partition = each.partition
        first, last = max(each.start, start.get(partition, 0)), min(each.end, end.get(partition, 0))
        if first < last:
            return Range(partition, first, last)
    return None


def _ranges(names: Iterable[str], query: str) -> Iterator[Range]:
    prefix = _prefix(query)
    for name in names:
        if name.startswith(prefix):
            for topic, found in json.loads(name.removeprefix(prefix)).items():
                for partition, (start, end) in found.items():
                    yield Range(TopicPartition(topic, int(partition)), start, end)


def _prefix(query: str) -> str:
    return f"{query}-backfill "
