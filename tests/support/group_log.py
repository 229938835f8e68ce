"""The durable history of groups, `__consumer_offsets` itself, judged against I14 and I15.

What members wrote down tells what they believed; this tells what the coordinator decided: one
owner per partition in every generation, epochs that never go back, offsets that never regress.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from headrace.groups.records import GroupRecord, decode
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import iterate_headers
from headrace.protocol.schemas.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from headrace.protocol.schemas.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.support.history_checks import Violation

Owned = frozenset[tuple[UUID | str, int]]


def group_batches(data_dir: Path) -> Iterator[list[GroupRecord]]:
    """All records of a stopped broker's groups, batch by batch, in order within a partition."""
    for directory in sorted(data_dir.glob("__consumer_offsets-*")):
        for path in sorted(directory.glob("*.log")):
            data = memoryview(path.read_bytes())
            for position, header in iterate_headers(data):
                found = []
                for each in iterate_records(data, position, header):
                    assert each.key is not None
                    record = decode(each.key, each.value)
                    if record is not None:
                        found.append(record)
                yield found


class GroupLog:
    """Takes records as they lie in the log and keeps what is wrong with them."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.generations = 0
        self._generation: dict[str, int] = {}
        self._epoch: dict[str, int] = {}
        self._owned: defaultdict[str, dict[str, Owned]] = defaultdict(dict)
        self._offsets: dict[tuple[str, str, int], int] = {}

    def take(self, batch: list[GroupRecord]) -> None:
        """A batch is one decision, or several: ownership is looked at when it is complete."""
        for key, value in batch:
            if isinstance(key, OffsetCommitKey):
                self._offset(key, value)
            elif isinstance(key, GroupMetadataKey):
                self._classic(key.group, value)
            elif isinstance(key, ConsumerGroupMetadataKey):
                self._consumer(key.group_id, value)
            elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
                self._member(key, value)
        for group, members in self._owned.items():
            self._disjoint(f"{group} in epoch {self._epoch.get(group)}", members)

    def _offset(self, key: OffsetCommitKey, value: object) -> None:
        place = (key.group, key.topic, key.partition)
        if not isinstance(value, OffsetCommitValue):
            self._offsets.pop(place, None)
            return
        before = self._offsets.get(place, -1)
        if value.offset < before:
            self._bad("I14", f"{place}: {value.offset} was stored after {before}")
        self._offsets[place] = value.offset

    def _classic(self, group: str, value: object) -> None:
        if not isinstance(value, GroupMetadataValue):
            self._generation.pop(group, None)
            return
        before = self._generation.get(group, 0)
        if value.generation < before:
            self._bad("I15", f"{group}: generation {value.generation} follows {before}")
        self._generation[group] = value.generation
        self.generations += 1
        shares = {each.member_id: _share(bytes(each.assignment)) for each in value.members}
        self._disjoint(f"{group} in generation {value.generation}", shares)

    def _consumer(self, group: str, value: object) -> None:
        if not isinstance(value, ConsumerGroupMetadataValue):
            self._epoch.pop(group, None)
            self._owned.pop(group, None)
            return
        before = self._epoch.get(group, 0)
        if value.epoch < before:
            self._bad("I15", f"{group}: epoch {value.epoch} follows {before}")
        self._epoch[group] = value.epoch
        self.generations += 1

    def _member(self, key: ConsumerGroupCurrentMemberAssignmentKey, value: object) -> None:
        if not isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            self._owned[key.group_id].pop(key.member_id, None)
            return
        # What is being given up is still the member's until it says that it has done so.
        self._owned[key.group_id][key.member_id] = frozenset(
            (each.topic_id, index)
            for each in (*value.assigned_partitions, *value.partitions_pending_revocation)
            for index in each.partitions
        )

    def _disjoint(self, where: str, shares: dict[str, Owned]) -> None:
        taken: dict[tuple[UUID | str, int], str] = {}
        for member, owned in shares.items():
            for partition in owned:
                if partition in taken:
                    self._bad("I15", f"{where}: {partition} is {taken[partition]}'s and {member}'s")
                taken[partition] = member

    def _bad(self, invariant: str, message: str) -> None:
        self.violations.append(Violation(invariant, message))


def check_group_log(data_dir: Path) -> GroupLog:
    """Judge what a stopped broker holds on disk."""
    log = GroupLog()
    for batch in group_batches(data_dir):
        log.take(batch)
    return log


def _share(assignment: bytes) -> Owned:
    """The partitions in a classic consumer's assignment; empty before the group is stable."""
    if not assignment:
        return frozenset()
    (topics,) = struct.unpack_from(">i", assignment, 2)
    position = 6
    found: set[tuple[UUID | str, int]] = set()
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, position)
        position += 2
        topic = assignment[position : position + length].decode()
        position += length
        (count,) = struct.unpack_from(">i", assignment, position)
        indexes = struct.unpack_from(f">{count}i", assignment, position + 4)
        position += 4 + 4 * count
        found.update((topic, index) for index in indexes)
    return frozenset(found)
