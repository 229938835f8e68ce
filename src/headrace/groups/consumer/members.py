"""One member of a consumer group: what it told about itself, and what it owns.

             ┌────────── target moved, something to give up ──────────┐
             v                                                        │
UNREVOKED_PARTITIONS ──given up──> UNRELEASED_PARTITIONS ──all free──> STABLE
                                   (others still hold what it shall get)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from headrace.groups.consumer.assignors.model import TopicIdPartition

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that is away, and expected back before its session ends."""

Owned = Mapping[TopicIdPartition, int]
"""Partitions and the epoch at which the member got each (KIP-1251)."""

NOTHING_OWNED: Final[Owned] = MappingProxyType({})


class MemberState(IntEnum):
    """How far a member is from its target; values as in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member needs to be served that speaks the classic protocol (during a migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and subscription of each embedded protocol, in the order of preference."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=lambda: NOTHING_OWNED)
    pending_revocation: Owned = field(default_factory=lambda: NOTHING_OWNED)

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved(
        self, epoch: int, state: MemberState, assigned: Owned, pending_revocation: Owned
    ) -> "ConsumerMember":
        """The member in its next epoch; the one before stays good, as the answer may be lost."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.previous_epoch if epoch == self.epoch else self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
